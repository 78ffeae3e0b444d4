// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func manCommand(root *cobra.Command, w io.Writer) *cobra.Command {
	return &cobra.Command{
		Use:               "man [TOOL | DIRECTORY/]",
		Short:             "write the man page of seine or of a tool, or all of them into a directory",
		Args:              atMost(1),
		ValidArgsFunction: completeCommands,
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := manDate()
			if err != nil {
				return err
			}
			if len(args) == 0 {
				return writeMan(w, root, date)
			}
			dir, all := strings.CutSuffix(args[0], "/")
			for _, c := range append(root.Commands(), root) {
				switch {
				case all && documented(c):
					if err := manFile(dir, c, date); err != nil {
						return err
					}
				case !all && c.Name() == args[0]:
					return writeMan(w, c, date)
				}
			}
			if !all {
				return unknownCommand(args[0])
			}
			return nil
		},
	}
}

// manDate is the date of the pages: today, or that of the package that is built.
func manDate() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now(), nil
	}
	s, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %q is not a number of seconds", epoch)
	}
	return time.Unix(s, 0).UTC(), nil
}

// documented reports whether a command has a page.
func documented(c *cobra.Command) bool {
	return !c.HasParent() || c.IsAvailableCommand() && !c.IsAdditionalHelpTopicCommand()
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func manFile(dir string, c *cobra.Command, date time.Time) error {
	f, err := os.Create(filepath.Join(dir, manName(c)+".8"))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeMan(f, c, date); err != nil {
		return err
	}
	return f.Close()
}

// writeMan writes the page of a command in the language of man(7).
func writeMan(w io.Writer, c *cobra.Command, date time.Time) error {
	c.InitDefaultHelpFlag()
	var p strings.Builder
	text := c.Long
	if text == "" {
		text = c.Short
	}
	if strings.Contains(text, "\n|") {
		p.WriteString("'\\\" t\n") // man runs tbl
	}
	fmt.Fprintf(&p, ".nh\n.TH \"%s\" \"8\" \"%s\" \"seine\" \"seine\"\n", strings.ToUpper(manName(c)), date.Format("Jan 2006"))
	fmt.Fprintf(&p, ".SH NAME\n%s \\- %s\n", manName(c), verbatim(c.Short))
	fmt.Fprintf(&p, ".SH SYNOPSIS\n\\fB%s\\fP\n", verbatim(c.UseLine()))
	p.WriteString(".SH DESCRIPTION\n")
	manText(&p, text)
	manFlags(&p, "OPTIONS", c.NonInheritedFlags())
	manFlags(&p, "OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	if c.Example != "" {
		p.WriteString(".SH EXAMPLES\n")
		literal(&p, strings.Split(c.Example, "\n"))
	}
	p.WriteString(".SH SEE ALSO\n" + strings.Join(seeAlso(c), ", ") + "\n")
	_, err := io.WriteString(w, p.String())
	return err
}

func seeAlso(c *cobra.Command) (pages []string) {
	if c.HasParent() {
		return []string{"\\fB" + manName(c.Parent()) + "\\fP(8)"}
	}
	for _, sub := range c.Commands() {
		if documented(sub) {
			pages = append(pages, "\\fB"+verbatim(manName(sub))+"\\fP(8)")
		}
	}
	return pages
}

func manFlags(p *strings.Builder, heading string, fs *pflag.FlagSet) {
	if !fs.HasAvailableFlags() {
		return
	}
	p.WriteString(".SH " + heading + "\n")
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		p.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(p, "\\fB\\-%s\\fP, ", f.Shorthand)
		}
		fmt.Fprintf(p, "\\fB\\-\\-%s\\fP", verbatim(f.Name))
		switch {
		case f.NoOptDefVal != "" && kind != "" && kind != "count":
			fmt.Fprintf(p, "[=\\fI%s\\fP]", verbatim(kind))
		case f.NoOptDefVal == "" && kind != "":
			fmt.Fprintf(p, " \\fI%s\\fP", verbatim(kind))
		}
		p.WriteString("\n" + protected(verbatim(usage)))
		if d := f.DefValue; d != "" && d != "false" && d != "0" && d != "[]" && !strings.Contains(usage, "default") {
			p.WriteString(" (default " + verbatim(d) + ")")
		}
		p.WriteString("\n")
	})
}

// manText writes a text of a README: paragraphs, lists, tables and indented code.
func manText(p *strings.Builder, text string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); {
		upTo := func(belongs func(string) bool) []string {
			from := i
			for i++; i < len(lines) && belongs(lines[i]); i++ {
			}
			return lines[from:i]
		}
		begins := func(marks string) func(string) bool {
			return func(l string) bool { return strings.HasPrefix(l, marks) }
		}
		switch line := lines[i]; {
		case line == "":
			i++
		case begins("- ")(line):
			p.WriteString(".IP \\(bu 2\n" + roff(strings.Join(upTo(begins("  ")), "\n")[len("- "):]) + "\n")
		case begins("|")(line):
			table(p, upTo(begins("|")))
		case begins("    ")(line):
			literal(p, upTo(begins("    ")))
		default:
			plain := func(l string) bool {
				return l != "" && !begins("- ")(l) && !begins("|")(l) && !begins("    ")(l)
			}
			p.WriteString(".PP\n" + roff(strings.Join(upTo(plain), "\n")) + "\n")
		}
	}
}

// table writes a table of Markdown for tbl(1). Its last column wraps, and those that are wide.
func table(p *strings.Builder, lines []string) {
	const wide = 30
	var rows [][]string
	for i, line := range lines {
		if i != 1 { // the rule below the heads
			rows = append(rows, strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	columns := len(rows[0])
	wraps := make([]bool, columns)
	for n := range wraps {
		wraps[n] = n == columns-1 || slices.ContainsFunc(rows, func(row []string) bool { return len(row[n]) > wide })
	}
	layout := func(font string) string {
		var cells []string
		for _, w := range wraps {
			cell := "l" + font
			if w {
				cell += "x"
			}
			cells = append(cells, cell)
		}
		return strings.Join(cells, " ")
	}
	fmt.Fprintf(p, ".TS\n%s\n%s.\n", layout("b"), layout(""))
	for _, row := range rows {
		for n, cell := range row {
			if row[n] = roff(cell); wraps[n] {
				row[n] = "T{\n" + row[n] + "\nT}"
			}
		}
		p.WriteString(strings.Join(row, "\t") + "\n")
	}
	p.WriteString(".TE\n")
}

// literal writes lines as they are.
func literal(p *strings.Builder, lines []string) {
	p.WriteString(".EX\n")
	for _, l := range lines {
		p.WriteString(protected(verbatim(l)) + "\n")
	}
	p.WriteString(".EE\n")
}

// roff writes text of Markdown: code is bold.
func roff(text string) string {
	var out strings.Builder
	for i, part := range strings.Split(text, "`") {
		if i%2 == 0 {
			out.WriteString(strings.ReplaceAll(part, `\`, `\e`))
		} else {
			out.WriteString(`\fB` + verbatim(part) + `\fP`)
		}
	}
	lines := strings.Split(out.String(), "\n")
	for i, l := range lines {
		lines[i] = protected(strings.TrimSpace(l))
	}
	return strings.Join(lines, "\n")
}

// protected is a line that man(7) does not take for a request.
func protected(line string) string {
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		return `\&` + line
	}
	return line
}

// verbatim keeps characters that man(7) would print as others, such as - as a hyphen: what a reader copies is what was written.
func verbatim(s string) string {
	for _, c := range [][2]string{{`\`, `\e`}, {"-", `\-`}, {"'", `\(aq`}, {"^", `\(ha`}, {"~", `\(ti`}} {
		s = strings.ReplaceAll(s, c[0], c[1])
	}
	return s
}
