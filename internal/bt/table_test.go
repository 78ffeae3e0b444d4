// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	goast "go/ast"
	goparser "go/parser"
	gotoken "go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// asserting are the tests that run scripts and look at what they print, those
// first that need least.
var asserting = []string{
	"TestElements", "TestEventElements", "TestSignal", "TestLibrary", "TestUserFunctions", "TestTracepointOneLiners", "TestReceiveOneLiner",
	"TestRetransmitOneLiner", "TestFunctions", "TestWays", "TestLimits", "TestChild", "TestStringLength", "TestLoss", "TestGetopt", "TestImport", "TestDebugf", "TestPerCPU", "TestUSDT", "TestWatch", "TestIter", "TestSelf",
	"TestUserMemory", "TestMovedFile", "TestWriteUser", "TestUnwatch", "TestOverride", "TestModes", "TestFamily",
	"TestOffset", "TestCPP", "TestUnused", "TestToolScripts", "TestCorpusRuns", "TestSkbOutput", "TestPinned", "TestBPFPrograms", "TestDWARF", "TestLoops", "TestJSON", "TestIntervalRoom", "TestPIDNamespace", "TestRows", "TestReads", "TestIncludes", "TestProbeFilter",
}

// leastScripts is how many different scripts they run.
const leastScripts = 200

// loaded are elements that no machine of ours has events for: their programs
// are only loaded.
var loadedOnly = map[string]string{"hardware": "TestCorpus"}

// language is every element there is, by group. Names come from the compiler's
// own tables.
func language() [][2]any {
	statements := []string{
		"if", "else", "while", "for", "for ($kv : @m)", "unroll", "break", "continue", "return", "let", "=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=", "++", "--", "/…/",
	}
	expressions := []string{
		"+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^", "~", "!", "&&", "||", "==", "!=", "<", ">", "<=", ">=", "? :", "?:", "->", ".", "[]", "*p", "(int32)x", "(struct s *)x",
		"sizeof", "offsetof", "typeof", "(a, b)", ".0", "(name=a)", "{ …; x }",
	}
	declarations := []string{"struct", "union", "enum", "typedef", "#define", "#if", "#include", "config", "let @m = lruhash(n)", "macro", "import"}
	probes := slices.DeleteFunc(slices.Sorted(maps.Keys(kindNames)), func(s string) bool { return len(s) < 3 })
	names := append(slices.Sorted(maps.Keys(builtins)), "argN", "$1", "$#")
	return [][2]any{
		{"probes", probes}, {"statements", statements}, {"expressions", expressions}, {"builtins", names},
		{"functions", append(append(slices.Sorted(maps.Keys(functions)), "getopt"), slices.Sorted(maps.Keys(library))...)}, {"aggregations", slices.Sorted(maps.Keys(aggregations))}, {"declarations", declarations},
	}
}

// patterns find an element in a script, where its name is not enough.
var patterns = map[string]string{
	"(name=a)": `\(\w+=\w`, "{ …; x }": `= \{|\(\{`, "import": `import ""`,
	"/…/": `(?m)\S\s*/[^/*\n][^\n]*/\s*\{`, "? :": `\?[^:]*:`, "[]": `(\w|\])\[\d`, "*p": `[(=,{!]\s*\*[$(k]`, "&": `\w & [\w$]`, "(int32)x": `\(u?int\d+\)`,
	"(struct s *)x": `\(struct \w+ \*\)`, "(a, b)": `[=(\[] ?\(\w+, `, ".0": `\.\d\b`, "argN": `\barg\d\b`, "$1": `\$\d`, "$#": `\$#`, ".": `\w\.[a-z]\w*`,
	"?:": `\?:`, "let @m = lruhash(n)": `let @\w+ = \w*hash\(`, "config": `config\s*=\s*\{`, "-": `\s- ?\w|\(- `, "<": ` < `, ">": ` > `, "*": `\w \* [\w$]`, "/": `\w\)? / \w`, "|": ` \| `, "^": ` \^ `, "%": `\w % \w`, "=": ` = `,
	"!": `!\w|!\$|!@`, "+": ` \+ `, "for": `for \(`, "for ($kv : @m)": `for \(\$\w+ : @`, "args": `\bargs(->|\.)`,
}

func pattern(group, name string) *regexp.Regexp {
	text, ok := patterns[name]
	switch {
	case ok:
	case group == "functions" || group == "aggregations":
		text = `\b` + name + `\(`
	case group == "probes":
		text = `\A#probes .* ` + name + ` `
	case regexp.MustCompile(`^\w`).MatchString(name):
		text = `(^|[^.>\w])` + name + `\b`
	default:
		text = regexp.QuoteMeta(name)
	}
	return regexp.MustCompile(text)
}

var (
	comment = regexp.MustCompile(`(?m)//.*$|(?s:/\*.*?\*/)`)
	literal = regexp.MustCompile(`"(\\.|[^"\\\n])*"`)
)

// scriptsOf gives the scripts in the tests' own text: string literals that the
// parser takes, and the files of the corpus that they name.
func scriptsOf(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	files, _ := filepath.Glob("*_test.go")
	for _, name := range files {
		f, err := goparser.ParseFile(gotoken.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*goast.FuncDecl)
			if !ok {
				continue
			}
			goast.Inspect(fn, func(n goast.Node) bool {
				lit, ok := n.(*goast.BasicLit)
				if !ok || lit.Kind != gotoken.STRING {
					return true
				}
				text, err := strconv.Unquote(lit.Value)
				if data, e := corpus.ReadFile(text); e == nil {
					text = string(data)
				}
				text = strings.NewReplacer("%%", "%", "%d", "0", "%#x", "0x8", "%[1]s", "ax").Replace(text)
				if s, e := Parse(&Source{Name: "t", Text: text}); err == nil && e == nil {
					text = literal.ReplaceAllString(comment.ReplaceAllString(text, ""), `""`)
					found[fn.Name.Name] = append(found[fn.Name.Name], "#probes "+kinds(s)+"\n"+text)
				}
				return true
			})
		}
	}
	return found
}

// kinds are the types of a script's probes, as written; long for short ones.
func kinds(s *Script) string {
	list := " "
	for _, c := range s.Clauses {
		for _, p := range c.Points {
			kind, _, _ := strings.Cut(p.Raw, ":")
			if len(kind) < 3 {
				kind = kindNames[kind].String()
			}
			list += kind + " "
		}
	}
	return list
}

const docs = "../../docs/LANGUAGE.md"

// TestTable wants a test for every element of the language, and the table of
// docs/LANGUAGE.md to be the one that the tests give.
func TestTable(t *testing.T) {
	text, err := os.ReadFile(docs)
	if err != nil {
		t.Skip("the source is not here")
	}
	found := scriptsOf(t)
	var b strings.Builder
	b.WriteString("| | elements | run, and what they print compared, in |\n|---|---|---|\n")
	for _, g := range language() {
		group, elements := g[0].(string), g[1].([]string)
		by := map[string][]string{}
		for _, name := range elements {
			p := pattern(group, name)
			i := slices.IndexFunc(asserting, func(test string) bool { return slices.ContainsFunc(found[test], p.MatchString) })
			switch {
			case i >= 0:
				by[asserting[i]] = append(by[asserting[i]], "`"+strings.ReplaceAll(name, "|", "\\|")+"`")
			case loadedOnly[name] != "":
				by[loadedOnly[name]+" (loaded only)"] = append(by[loadedOnly[name]+" (loaded only)"], "`"+name+"`")
			default:
				t.Errorf("%s: no test asserts what %s gives", group, name)
			}
		}
		for _, test := range append(asserting, "TestCorpus (loaded only)") {
			if len(by[test]) > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", group, strings.Join(by[test], " "), test)
			}
		}
	}
	all := map[string]bool{}
	for _, test := range asserting {
		for _, s := range found[test] {
			all[s] = true
		}
	}
	if len(all) < leastScripts {
		t.Errorf("the tests compare what %d scripts print, want %d", len(all), leastScripts)
	}
	fmt.Fprintf(&b, "\nThese tests run %d scripts and compare what they print. TestCorpus loads %d, those of the corpus.\n", len(all), len(scripts(t)))
	const begin, end = "<!-- made by internal/bt/table_test.go -->\n", "<!-- end -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", docs)
	}
	want := before + begin + b.String() + end + after
	if os.Getenv("UPDATE") != "" {
		check(os.WriteFile(docs, []byte(want), 0o644))
	} else if want != string(text) {
		t.Errorf("the table of %s is not that of the tests: UPDATE=1 go test ./internal/bt writes it", docs)
	}
}
