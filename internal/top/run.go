// SPDX-License-Identifier: Apache-2.0

package top

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"golang.org/x/sys/unix"

	"seine/internal/watch"
)

// A Source gives snapshots: of the machine, or of a recording.
type Source interface {
	// Look returns the state at a time, or the latest. Followed connections have a history from
	// then on.
	Look(ctx context.Context, at time.Time, events bool, follow []watch.ConnKey) (*Snapshot, error)
}

// Options are the options of a screen. Every is its refresh interval; 0: only on demand. Count
// is the number of refreshes after which it ends; 0: never.
type Options struct {
	Source   Source
	State    *State
	Look     Look
	In, Out  *os.File
	Terminal *Terminal
	Every    time.Duration
	Count    uint64
}

// framesPerSecond is how often bubbletea looks for a new screen. It wakes up for that even if there
// is none. A key shows its effect within 100 ms, which feels immediate.
const framesPerSecond = 10

// Run shows the screen until the user or ctx ends it. It restores the terminal.
func Run(ctx context.Context, o Options) error {
	first, err := o.Source.Look(ctx, o.State.At, o.State.WantsEvents(), nil)
	if err != nil {
		return err
	}
	s := &screen{Options: o, ctx: ctx, snap: first}
	out := &entries{file: o.Out}
	p := tea.NewProgram(s, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(framesPerSecond))
	s.stops = make(chan os.Signal, 1)
	signal.Notify(s.stops, unix.SIGTSTP)
	defer signal.Stop(s.stops)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-s.stops:
				suspend(p, o.Terminal, out, done)
			case <-done:
				return
			}
		}
	}()
	o.Terminal.take(true)
	_, err = p.Run()
	o.Terminal.take(false) // bubbletea has given it back, after a panic too
	if errors.Is(err, tea.ErrProgramPanic) {
		return errors.New("top: this is a bug in seine: please report the text above")
	}
	if s.err != nil {
		return s.err
	}
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

type (
	tickMsg struct{}
	snapMsg struct {
		snap *Snapshot
		err  error
		at   time.Time // as requested
	}
)

// screen is the loop: keys change the state, ticks bring snapshots, and both draw.
type screen struct {
	Options
	ctx           context.Context
	snap          *Snapshot
	cells, lines  int
	text          string
	looking, miss bool // a snapshot is being taken; another one is needed after it
	ticks         uint64
	stops         chan os.Signal
	err           error
}

// Init asks for the background colour and takes the first snapshot.
func (s *screen) Init() tea.Cmd { return tea.Batch(tea.RequestBackgroundColor, s.tick()) }

func (s *screen) tick() tea.Cmd {
	if s.Every == 0 {
		return nil
	}
	return tea.Tick(s.Every, func(time.Time) tea.Msg { return tickMsg{} })
}

// look takes a snapshot beside the loop, so that keys work meanwhile.
func (s *screen) look() tea.Cmd {
	if s.looking {
		s.miss = true
		return nil
	}
	s.looking = true
	at, events, follow := s.State.At, s.State.WantsEvents(), s.State.Follows()
	return func() tea.Msg {
		snap, err := s.Source.Look(s.ctx, at, events, follow)
		return snapMsg{snap, err, at}
	}
}

// Update handles a message.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		s.cells, s.lines = msg.Width, msg.Height
	case tea.BackgroundColorMsg:
		s.Look.Light = !msg.IsDark()
	case tickMsg:
		if s.ticks++; s.ticks == s.Count {
			return s, tea.Quit
		}
		if cmd = s.tick(); !s.State.Paused && s.State.At.IsZero() {
			return s, tea.Batch(cmd, s.look()) // drawn when the snapshot is taken
		}
		return s, cmd
	case snapMsg:
		s.looking = false
		if msg.err != nil {
			s.err = msg.err
			return s, tea.Quit
		}
		s.snap = msg.snap
		if msg.at.Equal(s.State.At) && !msg.at.IsZero() && msg.at.Before(s.snap.At) { // the recording starts here
			s.State.At = s.snap.At
		}
		if s.State.Paused {
			s.snap.freeze()
		}
		if s.miss {
			s.miss = false
			cmd = s.look()
		}
	case tea.ResumeMsg:
		cmd = s.look()
	case tea.PasteMsg:
		s.State.Key("", strings.ReplaceAll(msg.Content, "\n", " "), s.snap)
	case tea.KeyPressMsg:
		switch s.State.Key(msg.String(), msg.Key().Text, s.snap) {
		case Quit:
			return s, tea.Quit
		case Suspend:
			select {
			case s.stops <- unix.SIGTSTP:
			default:
			}
		case Copy:
			cmd = tea.SetClipboard(s.State.note)
		case Refresh:
			cmd = s.look()
		case Repaint:
			cmd = tea.ClearScreen
		}
	}
	if s.cells > 0 {
		s.text = Draw(s.State, s.snap, s.cells, s.lines, s.Look)
	}
	return s, cmd
}

// View is the screen.
func (s *screen) View() tea.View {
	v := tea.NewView(s.text)
	v.AltScreen = true
	return v
}
