// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"seine/internal/row"
	"seine/internal/words"
)

// Action tells the loop what to do after a key.
type Action int

// The actions.
const (
	Nothing Action = iota // draw the screen again
	Quit
	Suspend
	Copy    // the command behind the screen, to the clipboard
	Refresh // another time or window: take a new snapshot
	Repaint
)

// step is the step of [ and ], stride that of { and }.
const (
	step   = 10 * time.Second
	stride = time.Minute
)

// Key takes a key by its name, as bubbletea writes it; text is what it types.
func (s *State) Key(name, text string, snap *Snapshot) Action {
	s.note = ""
	if s.input != nil && name != "ctrl+c" {
		return s.typed(name, text)
	}
	if s.help && name != "q" && name != "ctrl+c" {
		s.help = false
		return Nothing
	}
	switch name {
	case "q", "ctrl+c":
		return Quit
	case "ctrl+z":
		return Suspend
	case "ctrl+l":
		return Repaint
	case "?", "h":
		s.help = true
	case "1", "2", "3", "4", "5":
		return s.open(Screen(name[0] - '1'))
	case "tab":
		return s.open((s.Screen + 1) % numScreens)
	case "shift+tab":
		return s.open((s.Screen + numScreens - 1) % numScreens)
	case "space", " ":
		if s.Paused = !s.Paused; !s.Paused {
			return Refresh
		}
		snap.freeze()
	case "[", "]", "{", "}":
		return s.travel(name, snap)
	case "c":
		if s.note = s.Command(snap); s.note != "" {
			return Copy
		}
	case "/":
		if q := s.query(); q != nil {
			s.input = newInput(q.where)
		}
	case "s", "S":
		s.resort(name == "S")
	case "enter", "right", "l":
		return s.enter(snap)
	case "esc", "backspace", "left":
		return s.back()
	default:
		s.move(name)
	}
	return Nothing
}

func (s *State) open(screen Screen) Action {
	s.Screen, s.levels = screen, nil
	return Refresh
}

func (s *State) back() Action {
	switch q := s.query(); {
	case len(s.levels) > 0:
		s.levels = s.levels[:len(s.levels)-1]
		return Refresh
	case q != nil && q.where != "":
		q.where = ""
	case !s.At.IsZero():
		s.At = time.Time{}
		return Refresh
	}
	return Nothing
}

func (s *State) travel(key string, snap *Snapshot) Action {
	by := step
	if key == "{" || key == "}" {
		by = stride
	}
	if key == "[" || key == "{" {
		by = -by
	}
	if snap.Behind == 0 && by > 0 && s.At.IsZero() {
		s.note = "this is the latest time"
		return Nothing
	}
	at, latest := snap.At, snap.At.Add(snap.Behind)
	if !s.At.IsZero() { // keys may be faster than snapshots
		at = s.At
	}
	if s.At = at.Add(by); !s.At.Before(latest) {
		s.At = time.Time{}
	}
	return Refresh
}

// resort sorts by the next column, or reverses the order.
func (s *State) resort(round bool) {
	q := s.query()
	if q == nil {
		return
	}
	all := lists()[s.kind()].sortable()
	if round {
		q.reverse = !q.reverse
	} else {
		q.sort = all[(max(slices.Index(all, q.sort), 0)+1)%len(all)]
		q.reverse = false
	}
	*q = query{where: q.where, sort: q.sort, reverse: q.reverse}
	s.note = "sorted by " + cmp.Or(q.sort, all[0])
	if q.reverse {
		s.note += ", reversed"
	}
}

func (s *State) move(key string) {
	if q := s.query(); q != nil {
		q.move(key, s.shown.at, s.rows, s.shown.matched)
		return
	}
	l := s.level()
	switch key {
	case "down", "j":
		l.scroll++
	case "up", "k":
		l.scroll = max(l.scroll-1, 0)
	case "pgdown":
		l.scroll += s.rows
	case "pgup":
		l.scroll = max(l.scroll-s.rows, 0)
	case "home", "g":
		l.scroll = 0
	}
}

func (q *query) move(key string, at, rows, matched int) {
	switch key {
	case "down", "j":
		at++
	case "up", "k":
		at--
	case "pgdown", "ctrl+f":
		at += max(rows-1, 1)
	case "pgup", "ctrl+b":
		at -= max(rows-1, 1)
	case "home", "g":
		q.cursor, q.at, q.top, q.pinned = nil, 0, 0, false
		return
	case "end", "G":
		at = matched - 1
	default:
		return
	}
	q.cursor, q.at, q.pinned = nil, max(min(at, matched-1), 0), true
}

// enter opens the row under the cursor.
func (s *State) enter(snap *Snapshot) Action {
	if s.query() == nil {
		return Nothing
	}
	switch x := s.shown.selected.(type) {
	case *service:
		k := x.ServiceKey
		s.levels = append(s.levels, level{title: titles[Services] + " > " + name(k), service: &k})
	case *process:
		w := x.Who
		s.levels = append(s.levels, level{title: titles[Processes] + " > " + w.Comm, who: &w})
	case *conn:
		k := x.ConnKey
		s.levels = append(s.levels, level{title: "one connection", conn: &k})
	case *event:
		k := x.TallyKey
		s.levels = append(s.levels, level{title: "one event", event: &k})
	case *finding:
		s.levels = append(s.levels, level{title: "one finding", finding: x.ID})
	default:
		return Nothing
	}
	return Refresh
}

// input is the filter that is being typed.
type input struct {
	text []rune
	at   int
	err  string
}

func newInput(text string) *input { return &input{text: []rune(text), at: len([]rune(text))} }

// word is the start of the word before the cursor.
func (in *input) word() int {
	i := in.at
	for i > 0 && isWord(in.text[i-1]) {
		i--
	}
	return i
}

func isWord(r rune) bool {
	return r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// matches are the columns that start with the word before the cursor. Inside quotes there are
// none.
func (in *input) matches(all []string) (out []string) {
	before := string(in.text[:in.at])
	if strings.Count(before, `"`)%2 == 1 {
		return nil
	}
	word := string(in.text[in.word():in.at])
	for _, id := range all {
		if strings.HasPrefix(id, word) {
			out = append(out, id)
		}
	}
	return out
}

func (in *input) insert(s string) {
	r := []rune(s)
	in.text = slices.Insert(in.text, in.at, r...)
	in.at += len(r)
}

// complete extends the word to the longest common prefix of the matching columns.
func (in *input) complete(all []string) {
	found := in.matches(all)
	if len(found) == 0 {
		return
	}
	common := found[0]
	for _, f := range found[1:] {
		for !strings.HasPrefix(f, common) {
			common = common[:len(common)-1]
		}
	}
	from := in.word()
	in.text = slices.Delete(in.text, from, in.at)
	in.at = from
	if in.insert(common); len(found) == 1 {
		in.insert(" ")
	}
}

// typed takes a key while a filter is being typed.
func (s *State) typed(key, text string) Action {
	in, q := s.input, s.query()
	in.err = ""
	switch key {
	case "esc":
		s.input = nil
		return Nothing
	case "enter":
		where := strings.TrimSpace(string(in.text))
		if err := lists()[s.kind()].check(where); err != nil {
			in.err = err.Error()
			return Nothing
		}
		*q = query{where: where, sort: q.sort, reverse: q.reverse}
		s.input = nil
		return Nothing
	case "tab":
		in.complete(lists()[s.kind()].ids())
	case "backspace", "ctrl+h":
		if in.at > 0 {
			in.at--
			in.text = slices.Delete(in.text, in.at, in.at+1)
		}
	case "delete", "ctrl+d":
		if in.at < len(in.text) {
			in.text = slices.Delete(in.text, in.at, in.at+1)
		}
	case "left", "ctrl+b":
		in.at = max(in.at-1, 0)
	case "right", "ctrl+f":
		in.at = min(in.at+1, len(in.text))
	case "home", "ctrl+a":
		in.at = 0
	case "end", "ctrl+e":
		in.at = len(in.text)
	case "ctrl+u":
		in.text, in.at = in.text[in.at:], 0
	case "ctrl+k":
		in.text = in.text[:in.at]
	case "ctrl+w":
		from := in.at
		for from > 0 && in.text[from-1] == ' ' {
			from--
		}
		for from > 0 && in.text[from-1] != ' ' {
			from--
		}
		in.text = slices.Delete(in.text, from, in.at)
		in.at = from
	default:
		if printable := words.Clean(text); text != "" && printable == text {
			in.insert(text)
		}
	}
	return Nothing
}

// CheckQuery checks a filter and an order of a screen.
func CheckQuery(s Screen, where, sort string) error {
	if all := lists()[s].ids(); sort != "" && !slices.Contains(all, sort) {
		if near := row.Nearest(sort, all); near != "" {
			return fmt.Errorf("sort: there is no column %q: did you mean %s?", sort, near)
		}
		return fmt.Errorf("sort: there is no column %q: one of %s", sort, strings.Join(all, ", "))
	}
	return lists()[s].check(where)
}
