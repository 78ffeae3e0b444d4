// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"seine/internal/names"
	"seine/internal/record"
	"seine/internal/tool"
)

// choose finds the stream of a recording that has the rows of the run. If there is
// none, the error names the command that would have recorded them.
func (r *run) choose(all []*record.Contents) (*record.Contents, error) {
	var mine []*record.Contents
	var others []string
	for _, c := range all {
		if c.Tool == r.tool.Name {
			mine = append(mine, c)
		} else if !slices.Contains(others, c.Tool) {
			others = append(others, c.Tool)
		}
	}
	if len(mine) == 0 {
		has := "and none of other tools"
		if len(others) > 0 {
			has = "but " + strings.Join(others, ", ")
		}
		return nil, tool.Usagef("--from %s: it has no rows of %s, %s: 'seine record %s --dir DIR' would have recorded them", r.flags.from.path, r.tool.Name, has, quoted(r.asked()))
	}
	var why error
	var fit []*record.Contents
	for _, c := range mine {
		if err := r.answers(c); err != nil {
			why = err
		} else {
			fit = append(fit, c)
		}
	}
	if len(fit) == 0 {
		return nil, why
	}
	slices.SortStableFunc(fit, func(a, b *record.Contents) int { return len(a.Filters) - len(b.Filters) })
	if len(fit) > 1 && len(fit[0].Filters) == len(fit[1].Filters) && len(fit[0].Filters) > 0 {
		var names []string
		for _, c := range fit {
			names = append(names, "'"+c.Name+"'")
		}
		return nil, tool.Usagef("--from %s: rows of %s were recorded several times: %s: give the flags of one of them", r.flags.from.path, r.tool.Name, strings.Join(names, ", "))
	}
	return fit[0], nil
}

// asked is the tool with its given flags and --view, without common flags.
func (r *run) asked() string {
	out := r.tool.Name
	if r.flags.view != "" {
		out += " --view=" + r.flags.view
	}
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings(own, r.tool.NewConfig())
	r.flags.given.Visit(func(f *pflag.Flag) {
		if own.Lookup(f.Name) == nil {
			return
		}
		if out += " --" + f.Name; f.Value.Type() != "bool" {
			out += "=" + f.Value.String()
		}
	})
	return out
}

// config returns the values of a tool's own flags.
func config(cfg any) map[string]string {
	out := map[string]string{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	settings(fs, cfg)
	fs.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.Value.String() })
	return out
}

// onRows are flags of tools that can be applied to rows.
var onRows = []string{"min", "max"}

// answers refuses a stream without the rows that the tool's own flags ask for. Every
// flag must have the recorded value or change only how rows are shown.
func (r *run) answers(c *record.Contents) error {
	asked := config(r.cfg)
	if view := r.lacksView(c); view != "" {
		return tool.Usagef("--view %s: %s was recorded without: 'seine record %s --dir DIR' would have recorded it", view, r.tool.Name, quoted(r.asked()))
	}
	if r.flags.names && !slices.ContainsFunc(c.Schemas, func(s *record.Schema) bool { return s.Has(names.Column) }) {
		return tool.Usagef("--names: %s was recorded without: 'seine record %s --dir DIR' would have recorded them", r.tool.Name, quoted(r.asked()+" --names"))
	}
	for name, value := range asked {
		was, known := c.Config[name]
		if was == value || !known && value == config(r.tool.NewConfig())[name] || slices.Contains(onRows, name) && (was == "" || !known) {
			continue
		}
		if r.onlyShows(c.Config, name, value) {
			continue
		}
		if was != "" && (was != "false" || value == "") && !r.flags.given.Changed(name) {
			return tool.Usagef("--from %s: %s was recorded with --%s=%s: give it here too, or 'seine record %s --dir DIR' would have recorded the rest", r.flags.from.path, r.tool.Name, name, was, quoted(r.asked()))
		}
		return tool.Usagef("--%s: %s was recorded without: 'seine record %s --dir DIR' would have recorded it", name, r.tool.Name, quoted(r.asked()))
	}
	return nil
}

// lacksView is a view that the run shows and the stream does not have, "" if it has all. A
// tool that is not a Viewer records all of its views, even those without rows, unless
// --view says otherwise.
func (r *run) lacksView(c *record.Contents) string {
	_, one := r.cfg.(tool.Viewer)
	for _, s := range r.prepared.Schemas {
		if r.flags.view != "" && s.View != r.flags.view {
			continue
		}
		recorded := !one || slices.ContainsFunc(c.Schemas, func(o *record.Schema) bool { return o.View == s.View })
		alone := slices.ContainsFunc(c.Filters, func(f string) bool { return strings.HasPrefix(f, "--view=") && f != "--view="+s.View })
		if recorded && !alone {
			return ""
		}
	}
	return cmp.Or(r.flags.view, r.prepared.Schemas[0].View)
}

// onlyShows reports whether a flag changes only how rows are shown.
func (r *run) onlyShows(recorded map[string]string, name, value string) bool {
	make := func(changed bool) any {
		cfg := r.tool.NewConfig()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		settings(fs, cfg)
		for flag, v := range recorded {
			if fs.Lookup(flag) != nil && v != "" {
				fs.Set(flag, v)
			}
		}
		if changed {
			fs.Set(name, value)
		}
		return cfg
	}
	a, b := make(false), make(true)
	if reachesKernel(r.tool, a, name) {
		return false
	}
	one, two := r.tool.Views(a), r.tool.Views(b)
	if len(one) != len(two) {
		return false
	}
	shown := r.tool.Plot != nil && !reflect.DeepEqual(r.tool.Plot(a), r.tool.Plot(b))
	for i := range one {
		x, y := &one[i], &two[i]
		if x.Name != y.Name || !sameOutput(x.Output, y.Output) || x.Where != y.Where || x.Merge != y.Merge || !slices.Equal(x.Always, y.Always) || len(x.Points) != len(y.Points) {
			return false
		}
		if x.Show != y.Show || x.Line != y.Line || x.Time != y.Time || x.Sort != y.Sort || x.Format != y.Format || x.NoStack != y.NoStack ||
			(x.Above == nil) != (y.Above == nil) || !slices.Equal(x.By, y.By) || !slices.Equal(x.Stacks, y.Stacks) {
			shown = true
		}
	}
	return shown
}

// sameOutput reports whether two outputs give the same rows. It takes functions as equal
// if their code is.
func sameOutput(a, b tool.Output) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if x.Type() != y.Type() {
		return false
	}
	if x.Kind() != reflect.Struct {
		return reflect.DeepEqual(a, b)
	}
	for i := range x.NumField() {
		f, g := x.Field(i), y.Field(i)
		if f.Kind() == reflect.Func {
			if f.Pointer() != g.Pointer() {
				return false
			}
		} else if f.CanInterface() && !reflect.DeepEqual(f.Interface(), g.Interface()) && f.Kind() != reflect.Interface {
			return false
		}
	}
	return true
}

// reachesKernel reports whether a flag is a constant of the tool's programs.
func reachesKernel(t *tool.Tool, cfg any, name string) bool {
	v := reflect.TypeOf(cfg).Elem()
	for i := range v.NumField() {
		f := v.Field(i)
		if f.Tag.Get("flag") == name {
			return f.Tag.Get("bpf") != ""
		}
		if f.Anonymous && f.Type.Kind() == reflect.Struct {
			for j := range f.Type.NumField() {
				if g := f.Type.Field(j); g.Tag.Get("flag") == name {
					return g.Tag.Get("bpf") != ""
				}
			}
		}
	}
	return false
}
