// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"strings"
	"testing"
)

// TestConfig has what settings change, of the script and of the environment.
func TestConfig(t *testing.T) {
	env := func(text string, environment ...string) func(Options) (*Program, error) {
		return func(o Options) (*Program, error) {
			o.Environment = environment
			return Compile(&Source{Name: "-e", Text: text}, o)
		}
	}
	for _, c := range []struct {
		name    string
		compile func(Options) (*Program, error)
		out     string // all of it
		errs    string // in it
	}{
		{"print_maps_on_exit", env(`config = { print_maps_on_exit = false } BEGIN { @x = 1; print(@x); exit(); }`), "@x: 1\n", ""},
		{"BPFTRACE_PRINT_MAPS_ON_EXIT", env(`config = { BPFTRACE_PRINT_MAPS_ON_EXIT = 0 } BEGIN { @x = 1; exit(); }`), "", ""},
		{"environment first", env(`config = { print_maps_on_exit = true; } BEGIN { @x = 1; exit(); }`, "BPFTRACE_PRINT_MAPS_ON_EXIT=false"), "", ""},
		{"max_strlen", env(`BEGIN { printf("%d\n", sizeof(str(0))); exit(); }`, "BPFTRACE_MAX_STRLEN=48"), "48\n", ""},
		{"old name", env(`BEGIN { printf("%d\n", sizeof(str(0))); exit(); }`, "BPFTRACE_STRLEN=48"), "48\n", ""},
		{"max_map_keys", env(`BEGIN { @[1] = 1; @[2] = 1; @[3] = 1; clear(@); exit(); }`, "BPFTRACE_MAX_MAP_KEYS=2"), "", "1 update of a map was refused"},
		{"max_cat_bytes", env(`config = { max_cat_bytes = 3 } BEGIN { cat("/proc/sys/kernel/ostype"); exit(); }`), "Lin", ""},
		{"missing_probes", env(`config = { missing_probes = warn } t:no:such { @ = 1; } BEGIN { printf("x\n"); exit(); }`), "x\n", "unknown tracepoint no:such"},
		{"no effect", env(`config = { use_blazesym = true } BEGIN { exit(); }`, "BPFTRACE_COLOR=1", "BPFTRACE_MAX_STRLN=5"), "",
			"config: use_blazesym has no effect: symbols are looked up by seine itself\nseine: the variable BPFTRACE_COLOR has no effect: output has no colours\n" +
				"seine: the variable BPFTRACE_MAX_STRLN is not a setting: did you mean BPFTRACE_MAX_STRLEN?\n"},
		{"on_stack_limit", env(`config = { on_stack_limit = 8; perf_rb_pages = 4; license = "Dual MIT/GPL" } BEGIN { @[comm == "", "sixteen bytes"] = 1; clear(@); printf("%s\n", "ok"); exit(); }`), "ok\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, errs := live(t, c.compile, Options{}, nil)
			if out != c.out || !strings.Contains(errs, c.errs) || c.errs == "" && errs != "" {
				t.Errorf("got %q and %q, want %q and %q", out, errs, c.out, c.errs)
			}
		})
	}
	t.Run("unstable", func(t *testing.T) {
		for feature, text := range map[string]string{
			"unstable_map_decl": `let @m = hash(5); BEGIN { @m[1] = 1; clear(@m); exit(); }`,
			"unstable_tseries":  `BEGIN { @m = tseries(1, 1s, 5); clear(@m); exit(); }`,
			"unstable_addr":     `BEGIN { $x = 1; printf("%d", *(&$x)); exit(); }`,
			"unstable_macro":    `macro one() { 1 } BEGIN { printf("%d", one()); exit(); }`,
			"unstable_import":   `import "stdlib"; BEGIN { exit(); }`,
			"unstable_typeinfo": `BEGIN { $x = typeinfo(1); print($x.full_ty); exit(); }`,
		} {
			for value, want := range map[string]string{
				"enable": "", "true": "", "warn": "warning: " + feature + " = enable", "error": "needs " + feature + " = enable",
			} {
				var notes strings.Builder
				_, err := Compile(&Source{Name: "-e", Text: "config = { " + feature + " = " + value + " } " + text}, Options{Err: &notes})
				errs := notes.String()
				if err != nil {
					errs, _, _ = strings.Cut(err.Error(), "\n")
				}
				if want == "" && errs != "" || !strings.Contains(errs, want) || (err != nil) != (value == "error") || strings.Count(errs, feature) > 1 {
					t.Errorf("%s = %s: got %q, want %q", feature, value, errs, want)
				}
			}
		}
	})
	t.Run("ignore", func(t *testing.T) {
		_, errs := live(t, script(`config = { missing_probes = "ignore" } t:no:such, BEGIN { exit(); }`), Options{}, nil)
		if errs != "" {
			t.Errorf("got %q, want nothing", errs)
		}
	})
	t.Run("stack_mode", func(t *testing.T) {
		out, _ := live(t, script(`config = { stack_mode = raw } BEGIN { @[kstack(1)] = count(); @p[kstack(perf, 1)] = count(); @b[kstack(bpftrace, 1)] = count(); exit(); }`), Options{}, nil)
		for _, p := range []string{`(?m)^@\[\n    [0-9a-f]{16}\n\]: 1$`, `(?m)^@p\[\n\t[0-9a-f]{16} \w+\+\d+ \(.*\)\n\]: 1$`, `(?m)^@b\[\n    \w+\+\d+\n\]: 1$`} {
			wantMatch(t, out, p)
		}
	})
}

// TestSettingErrors wants settings refused in the script, at their place.
func TestSettingErrors(t *testing.T) {
	for text, want := range map[string]string{
		`config = { max_strln = 5 } BEGIN { }`:                 "-e:1:12: unknown setting max_strln: did you mean max_strlen?",
		`config = { stack_mod = perf } BEGIN { }`:              "-e:1:12: unknown setting stack_mod: did you mean stack_mode?",
		`config = { nothing_like_it = 5 } BEGIN { }`:           "-e:1:12: unknown setting nothing_like_it",
		`config = { max_strlen = 0 } BEGIN { }`:                "-e:1:12: config: max_strlen is a number from 1 to 8192, not 0",
		`config = { stack_mode = pref } BEGIN { }`:             "-e:1:12: config: stack_mode is one of bpftrace, perf, raw, build_id, not pref",
		`config = { print_maps_on_exit = maybe } BEGIN { }`:    "-e:1:12: config: print_maps_on_exit is true or false, not maybe",
		`config = { unstable_tseries = maybe } BEGIN { }`:      "-e:1:12: config: unstable_tseries is one of error, warn, enable, not maybe",
		`config = { missing_probes = error } BEGIN,t:no:x { }`: "-e:1:43: unknown tracepoint no:x",
		`BEGIN,t:no:x { }`:                                     `-e:1:7: unknown tracepoint no:x: seine run -l 't:*' lists them; config = { missing_probes = "warn" } runs the script without it`,
		`BEGIN { } t:no:x { }`:                                 "-e:1:11: unknown tracepoint no:x: seine run -l 't:*' lists them",
		`config = { missing_probes = warn } t:no:x { }`:        "-e:1:36: none of the probes is there",
		`config = { max_probes = 2 } BEGIN { } t:tcp:* { }`:    "-e:1:29: there are ",
		`config = { max_bpf_progs = 1 } BEGIN { } END { }`:     "-e:1:1: there are 2 programs, more than the 1 of max_bpf_progs",
	} {
		_, err := Compile(&Source{Name: "-e", Text: text}, Options{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
	_, err := Compile(&Source{Name: "-e", Text: "BEGIN { }"}, Options{Environment: []string{"BPFTRACE_MAX_STRLEN=x"}})
	if want := `the variable BPFTRACE_MAX_STRLEN is a number from 1 to 8192, not "x"`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}
