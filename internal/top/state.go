// SPDX-License-Identifier: Apache-2.0

package top

import (
	"sync"
	"time"

	"seine/internal/watch"
)

// Screen is one of the five screens.
type Screen int

// The screens.
const (
	Services Screen = iota
	Processes
	Connections
	Events
	Findings
	numScreens
)

// Screens are the names of the screens.
var Screens = [numScreens]string{"services", "processes", "connections", "events", "findings"}

// titles are the names on the screen.
var titles = [numScreens]string{"Services", "Processes", "Connections", "Events", "Findings"}

// State is what the user has chosen.
type State struct {
	Screen Screen
	Paused bool
	At     time.Time // the shown time; zero: the latest

	// Runs reports whether seine accepts a command line. It may be nil: all are accepted.
	Runs func(command string) bool

	queries [numScreens]query
	levels  []level // what Enter has opened, the outermost first
	input   *input  // the filter that is being typed
	help    bool
	note    string // shown in the last line until the next key
	shown   pane   // the rows on the screen
	rows    int    // lines that it has for rows
}

// A level is opened by Enter: the connections of a service or process, or one row in full.
type level struct {
	title   string
	query   query
	service *watch.ServiceKey // its connections
	who     *watch.Who        // its connections
	conn    *watch.ConnKey
	event   *watch.TallyKey
	finding string // id
	scroll  int
}

// lists reports whether the level is a list of connections.
func (l *level) lists() bool { return l.service != nil || l.who != nil }

// only returns the filter of its connections.
func (l *level) only() func(*watch.Conn) bool {
	if l.service != nil {
		return ofService(*l.service)
	}
	who := *l.who
	return func(c *watch.Conn) bool { return c.Who == who }
}

// NewState makes a state with a screen, its filter and its order.
func NewState(screen Screen, where, sort string, reverse bool) *State {
	s := &State{Screen: screen}
	s.queries[screen] = query{where: where, sort: sort, reverse: reverse}
	return s
}

// level is the level that was opened last; nil: a whole screen is shown.
func (s *State) level() *level {
	if len(s.levels) == 0 {
		return nil
	}
	return &s.levels[len(s.levels)-1]
}

// query is the query of the shown list; nil: no list is shown.
func (s *State) query() *query {
	l := s.level()
	switch {
	case l == nil:
		return &s.queries[s.Screen]
	case l.lists():
		return &l.query
	}
	return nil
}

// kind is the screen whose columns are shown.
func (s *State) kind() Screen {
	if s.level() != nil {
		return Connections
	}
	return s.Screen
}

// WantsEvents reports whether the snapshot needs the long window.
func (s *State) WantsEvents() bool {
	l := s.level()
	return l == nil && s.Screen == Events || l != nil && l.event != nil
}

// Follows are the connections on the screen: the user may open one of them next.
func (s *State) Follows() (out []watch.ConnKey) {
	if l := s.level(); l != nil && l.conn != nil {
		return []watch.ConnKey{*l.conn}
	}
	for _, k := range s.shown.visible {
		if c, ok := k.(watch.ConnKey); ok {
			out = append(out, c)
		}
	}
	return out
}

// list is what all tables can be asked.
type list interface {
	ids() []string
	sortable() []string
	rises(id string) bool
	check(where string) error
	help() []string
}

// lists are the tables of the screens. Only top makes them.
var lists = sync.OnceValue(func() [numScreens]list {
	return [numScreens]list{services(), processes(), connections(), events(), findings()}
})

// Rises reports whether sorting by a column of a screen starts with the smallest value.
func Rises(s Screen, id string) bool { return lists()[s].rises(id) }
