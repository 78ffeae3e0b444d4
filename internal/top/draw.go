// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"seine/internal/watch"
	"seine/internal/why"
	"seine/internal/words"
)

// The least size that a screen can be drawn in.
const (
	leastWidth  = 40
	leastHeight = 10
)

// Draw makes a screen with the given size in cells and lines. It notes in the state which rows
// are shown.
func Draw(s *State, snap *Snapshot, cells, lines int, l Look) string {
	if cells < leastWidth || lines < leastHeight {
		return tooSmall(cells, lines)
	}
	head := []string{s.title(snap, cells, l), snap.rates(cells, l), snap.headline(cells, l), s.tabs(cells, l)}
	if lines < 16 { // rows are more important
		head = []string{head[0], head[2], head[3]}
	}
	room := lines - len(head) - 1
	switch {
	case s.input != nil:
		room--
	case s.note != "":
		room -= len(s.notes(cells)) - 1
	}
	body := s.body(snap, cells, room, l)
	for len(body) < room {
		body = append(body, "")
	}
	all := append(append(head, body[:room]...), s.footer(snap, cells, l)...)
	for i, line := range all {
		all[i] = ansi.Truncate(strings.TrimRight(line, " "), cells, "")
	}
	return l.narrow(strings.Join(all, "\n"))
}

// tooSmall says that the terminal is too small, in the room that there is.
func tooSmall(cells, lines int) string {
	text := wrapped(fmt.Sprintf("Too small: %dx%d. seine top needs %dx%d. q quits.", cells, lines, leastWidth, leastHeight), max(cells, 1))
	return strings.Join(text[:min(len(text), max(lines, 1))], "\n")
}

// wrapped breaks a text into lines.
func wrapped(s string, cells int) (out []string) {
	line := ""
	for word := range strings.FieldsSeq(s) {
		for width(word) > cells {
			if line != "" {
				out, line = append(out, line), ""
			}
			out, word = append(out, ansi.Truncate(word, cells, "")), ansi.TruncateLeft(word, cells, "")
		}
		switch {
		case line == "":
			line = word
		case width(line)+1+width(word) <= cells:
			line += " " + word
		default:
			out, line = append(out, line), word
		}
	}
	if line != "" || len(out) == 0 {
		out = append(out, line)
	}
	return out
}

// sides puts one text to the left and one to the right.
func sides(left, right string, cells int) string {
	room := cells - width(left) - width(right)
	if room < 1 {
		return left
	}
	return left + spaces(room) + right
}

// title names the machine and the shown time.
func (s *State) title(snap *Snapshot, cells int, l Look) string {
	left := l.paint(strong, "seine top") + "  " + words.Clean(snap.Host) + "  "
	at := snap.At.Format("15:04:05")
	switch {
	case snap.At.IsZero():
		at = "--:--:--"
	case snap.From != "":
		at = snap.At.Format("2006-01-02 15:04:05")
	}
	right := "live, last 10 s"
	switch {
	case s.Paused:
		right = l.paint(warn, "PAUSED") + " (Space resumes)"
	case snap.From != "":
		right = "recording " + middle(words.Clean(snap.From), 30)
		if snap.Behind > 0 {
			right += ", " + ago(snap.Behind) + " before its end"
		}
	case snap.Behind > 0:
		right = l.paint(warn, ago(snap.Behind)+" ago") + " (Esc: now)"
	}
	return sides(left+at, right, cells)
}

// rates are the machine's counters, the most important first. Those that do not fit are left out.
func (snap *Snapshot) rates(cells int, l Look) string {
	v, per := snap.View, snap.seconds()
	var out []string
	used := 0
	add := func(style style, text string) bool {
		n := width(text) + 3
		if used+n > cells+3 {
			return false
		}
		used += n
		out = append(out, l.paint(style, text))
		return true
	}
	troubling := func(n float64) style {
		if n > 0 {
			return warn
		}
		return normal
	}
	var drops, again float64
	for _, t := range v.Tallies {
		switch t.Kind {
		case watch.Drop:
			drops += float64(t.Count) / per
		case watch.Retransmit:
			again += float64(t.Count) / per
		}
	}
	if v.Asked(watch.Counters) {
		add(normal, "IP in "+rate(float64(v.Grown("IpExtInOctets")+v.Grown("Ip6InOctets"))/per))
		add(normal, "out "+rate(float64(v.Grown("IpExtOutOctets")+v.Grown("Ip6OutOctets"))/per))
		again = float64(v.Grown("TcpRetransSegs")) / per
	} else {
		var in, sent float64
		for _, s := range v.Services {
			in += float64(s.RX) / per
			sent += float64(s.TX) / per
		}
		add(normal, "TCP in "+rate(in))
		add(normal, "out "+rate(sent))
	}
	add(troubling(again), "resent "+number(again)+"/s")
	if v.Asked("skbdrop") {
		add(troubling(drops), "drops "+number(drops)+"/s")
	} else {
		add(normal, "drops not seen")
	}
	lost := snap.lost() + v.Bounds.Evicted + v.Bounds.Refused + v.Bounds.Conns
	missed := number(float64(lost)) + " lost"
	if !snap.Self.Known || !add(troubling(float64(lost)), fmt.Sprintf("seine %.1f %% CPU, %s, %s", snap.Self.CPU*100, size(float64(snap.Self.Memory)), missed)) {
		add(troubling(float64(lost)), "seine: "+missed)
	}
	return strings.Join(out, l.paint(dim, " · "))
}

// headline is the worst finding, or says that there is none.
func (snap *Snapshot) headline(cells int, l Look) string {
	found := snap.Answer.Findings
	if len(found) == 0 {
		if snap.From == "" && snap.Behind == 0 && snap.View.Seconds() < 4 {
			return fmt.Sprintf("Looking: %.0f of %.0f s", snap.View.Seconds(), Recent.Seconds())
		}
		text := fmt.Sprintf("Nothing is wrong: %s checked", words.Count(uint64(len(snap.Answer.Judged)), "rule was", "rules were"))
		if n := len(snap.Answer.Unjudged); n > 0 {
			text += fmt.Sprintf(", %d could not be (5)", n)
		}
		return l.paint(good, fit(text, min(width(text), cells), true))
	}
	f := found[0]
	right := ""
	if len(found) > 1 {
		right = fmt.Sprintf(" +%d more (5)", len(found)-1)
	}
	text := fmt.Sprintf("%s  %s: %s", strings.ToUpper(f.Severity.String()), words.Clean(f.About()), words.Clean(f.Title))
	text = fit(text, min(width(text), cells-width(right)), true)
	return l.paint(hue(f), text) + right
}

// tabs are the screens, or the path to the open row.
func (s *State) tabs(cells int, l Look) string {
	var left string
	if v := s.level(); v != nil {
		title := middle(words.Clean(v.title), cells/2)
		left = l.paint(strong, title)
	} else {
		var out []string
		for i, t := range titles {
			text := fmt.Sprintf("%d %s", i+1, t)
			if Screen(i) == s.Screen {
				text = l.paint(strong, "["+text+"]")
			} else {
				text = " " + text + " "
			}
			out = append(out, text)
		}
		left = strings.Join(out, "")
		if width(left) > cells {
			left = l.paint(strong, fmt.Sprintf("[%d %s]", s.Screen+1, titles[s.Screen])) + " 1-5"
		}
	}
	return left
}

// body is the part between head and foot.
func (s *State) body(snap *Snapshot, cells, lines int, l Look) []string {
	s.rows = max(lines-1, 0)
	if s.help {
		return helpText(s.kind(), cells, lines, l)
	}
	if v := s.level(); v != nil && !v.lists() {
		s.shown = pane{}
		return s.detail(v, snap, cells, lines, l)
	}
	var above []string
	q := s.query()
	if q.where != "" || s.level() == nil && s.Screen == Events {
		text := ""
		if s.level() == nil && s.Screen == Events {
			if text = snap.totals(); width(text) > cells {
				text = strings.TrimPrefix(text, "Last ")
			}
		}
		if q.where != "" {
			text = "Filter: " + words.Clean(q.where)
		}
		above = []string{l.paint(dim, fit(text, min(width(text), cells), true))}
	}
	s.rows = max(lines-1-len(above), 0)
	p := s.list(snap, *q, cells, lines-len(above), l)
	s.shown = p
	q.at, q.top = p.at, p.top
	if q.pinned {
		q.cursor = p.cursor
	}
	if q.where != "" {
		above[0] = sides(above[0], fmt.Sprintf("%s of %s", words.Thousands(uint64(p.matched)), words.Thousands(uint64(p.total))), cells)
	}
	out := append(above, p.lines...)
	if p.err != nil {
		return append(out, "", l.paint(bad, words.Clean(p.err.Error())))
	}
	if len(p.visible) == 0 {
		out = append(out, "")
		for _, line := range wrapped(s.empty(snap, p), cells-2) {
			out = append(out, "  "+line)
		}
	}
	return out
}

// list is the table that is shown.
func (s *State) list(snap *Snapshot, q query, cells, lines int, l Look) pane {
	if v := s.level(); v != nil {
		return connections().pane(func(do func(*conn)) { snap.connections(v.only(), do) }, q, cells, lines, l)
	}
	switch s.Screen {
	case Services:
		return services().pane(snap.services, q, cells, lines, l)
	case Processes:
		return processes().pane(snap.processes, q, cells, lines, l)
	case Connections:
		return connections().pane(func(do func(*conn)) { snap.connections(nil, do) }, q, cells, lines, l)
	case Events:
		return events().pane(snap.events, q, cells, lines, l)
	}
	return findings().pane(snap.findings, q, cells, lines, l)
}

// empty says why there are no rows.
func (s *State) empty(snap *Snapshot, p pane) string {
	if p.total > 0 {
		return "No row matches the filter. Esc clears it, / changes it."
	}
	kind := s.kind()
	if src, ok := snap.View.Sources["flows"]; ok && src.Why != "" && kind <= Connections {
		return "Connections are not seen: flows: " + words.Clean(src.Why)
	}
	switch kind {
	case Findings:
		var out []string
		for _, u := range snap.Answer.Unjudged {
			out = append(out, fmt.Sprintf("%s (%s)", u.Class, words.Clean(u.Why)))
		}
		text := fmt.Sprintf("Nothing is wrong: %s checked in the last %.0f s.", words.Count(uint64(len(snap.Answer.Judged)), "rule was", "rules were"), snap.View.Seconds())
		if len(out) > 0 {
			text += " Not judged: " + strings.Join(out, "; ") + "."
		}
		return text
	case Events:
		return "No connect failed, no connection ended, nothing was retransmitted or dropped."
	case Connections:
		if !snap.Conns {
			return "A live run keeps only the latest connections. 'seine record' keeps all; then 'seine top --from DIR' shows them."
		}
	}
	return "No TCP connection has sent or received anything in the last 10 s."
}

// footer shows the keys, or the filter that is being typed.
func (s *State) footer(snap *Snapshot, cells int, l Look) []string {
	if s.input != nil {
		return s.prompt(cells, l)
	}
	if s.note != "" {
		out := s.notes(cells)
		for i, line := range out {
			out[i] = l.paint(strong, line)
		}
		return out
	}
	var keys [][2]string
	add := func(key, does string) { keys = append(keys, [2]string{key, does}) }
	q, v := s.query(), s.level()
	switch {
	case s.help:
		add("any key", "back")
	case v != nil && !v.lists():
		add("Esc", "back")
		add("c", "command")
	default:
		if v != nil {
			add("Esc", "back")
		} else if q.where != "" {
			add("Esc", "clear filter")
		}
		if len(s.shown.visible) > 0 {
			add("Enter", "open")
		}
		add("/", "filter")
		add("s", "sort")
		add("c", "command")
	}
	switch {
	case s.help:
	case s.Paused:
		add("Space", "resume")
	default:
		add("Space", "pause")
	}
	if snap.From != "" {
		add("[ ]", "time")
	}
	if !s.help {
		add("?", "help")
	}
	add("q", "quit")
	if snap.From == "" && !s.help {
		add("[ ]", "time")
	}
	var out []string
	used := 0
	for _, k := range keys {
		text := k[0] + " " + k[1]
		if used+width(text) > cells {
			break
		}
		used += width(text) + 2
		out = append(out, l.paint(strong, k[0])+" "+l.paint(dim, k[1]))
	}
	return []string{strings.Join(out, "  ")}
}

// notes are the lines of the note. A command is cut only if it would leave no room for rows.
func (s *State) notes(cells int) []string {
	out := wrapped(words.Clean(s.note), cells)
	return out[:min(len(out), 4)]
}

// prompt is the filter that is being typed, and its completions.
func (s *State) prompt(cells int, l Look) []string {
	in := s.input
	hint := "columns: " + strings.Join(in.matches(lists()[s.kind()].ids()), " ")
	switch {
	case in.err != "":
		hint = l.paint(bad, fit(words.Clean(in.err), min(width(in.err), cells), true))
	case hint == "columns: ":
		hint = `such as: comm == "nginx" && rport == 5432   Enter: filter  Esc: leave`
		hint = l.paint(dim, fit(hint, min(width(hint), cells), true))
	default:
		hint = l.paint(dim, fit(hint, min(width(hint), cells), true))
	}
	// A long text is cut so that the cursor stays visible.
	room := cells - len("filter: ") - 1
	from := max(0, in.at-room)
	until := min(len(in.text), from+room)
	text := string(in.text[from:in.at])
	under, after := " ", ""
	if in.at < until {
		under, after = string(in.text[in.at]), string(in.text[in.at+1:until])
	}
	return []string{hint, "filter: " + text + "\x1b[7m" + under + "\x1b[m" + after}
}

// detail shows one row in full.
func (s *State) detail(v *level, snap *Snapshot, cells, lines int, l Look) []string {
	var out []string
	switch {
	case v.conn != nil:
		out = snap.oneConn(*v.conn, cells, lines, l)
	case v.event != nil:
		out = snap.oneEvent(*v.event)
	default:
		out = []string{"", "This finding no longer holds. Esc goes back."}
		for _, f := range snap.Answer.Findings {
			if f.ID == v.finding {
				out = paragraphs(f, cells)
			}
		}
	}
	v.scroll = max(min(v.scroll, len(out)-lines), 0)
	return out[v.scroll:min(len(out), v.scroll+lines)]
}

// paragraphs is a finding, wrapped to the width.
func paragraphs(f *why.Finding, cells int) (out []string) {
	out = append(out, "")
	for _, p := range told(f) {
		indent := ""
		if len(p) > 6 && strings.TrimSpace(p[4:6]) == "" {
			indent, p = p[:6], p[6:]
		}
		for i, line := range wrapped(p, cells-2-len(indent)) {
			if i > 0 {
				indent = spaces(len(indent))
			}
			out = append(out, "  "+indent+line)
		}
	}
	return out
}

// oneEvent is all that is known about one kind of event.
func (snap *Snapshot) oneEvent(k watch.TallyKey) []string {
	var found *event
	snap.events(func(e *event) {
		if e.TallyKey == k {
			found = e
		}
	})
	if found == nil {
		return []string{"", "  It has not happened in the last 5 min. Esc goes back."}
	}
	out := []string{"", fmt.Sprintf("  %s: %s", found.word(), words.Clean(found.detail())), ""}
	add := func(what, text string) {
		if text != "" {
			out = append(out, fmt.Sprintf("  %-12s %s", what, words.Clean(text)))
		}
	}
	add("to whom", found.who())
	add("container", found.Container)
	add("PID", absent(found.PID != 0, plainNumber(found.PID)))
	add("how often", words.Thousands(found.Count)+", in "+words.Count(uint64(found.Seconds), "second", "seconds")+" of the last 5 min")
	add("last", time.Unix(found.Last, 0).Format("15:04:05"))
	if found.Bytes > 0 {
		add("bytes", size(float64(found.Bytes)))
	}
	if h := &found.Took; h.Count > 0 {
		unit := 1.0
		if found.Kind == watch.Closed {
			unit = 1000
		}
		add("took", fmt.Sprintf("p50 %s, p99 %s, at most %s", took(h.Quantile(0.5)*unit), took(h.Quantile(0.99)*unit), took(float64(h.Max)*unit)))
	}
	add("such as", found.Example)
	add("tool", kinds[found.Kind].tool)
	return out
}

// helpText explains keys and columns.
func helpText(s Screen, cells, lines int, l Look) []string {
	out := []string{
		l.paint(strong, "Keys"),
		"  1-5, Tab         screens             Enter   open the row under the cursor",
		"  j k g G, arrows  move                Esc     back; clear filter; now",
		"  /                filter (Tab: names) Space   pause, resume",
		"  s, S             sort, reverse       [ ]     10 s back, forward; { }: 1 min",
		"  c                print and copy the command that shows the same rows",
		"  q, Ctrl-C        quit                Ctrl-Z  suspend; fg resumes",
		"",
		l.paint(strong, "Columns of "+titles[s]+", as filters name them"),
	}
	for _, c := range lists()[s].help() {
		out = append(out, "  "+fit(c, min(width(c), cells-2), true))
	}
	return out[:min(len(out), lines)]
}
