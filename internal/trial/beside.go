// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"context"
	"errors"
	"fmt"

	"seine/internal/row"
	"seine/internal/tool"
)

// bystanders are tools that run in the same engine as the tested one. Their rows
// are not checked. Nil: none.
type bystanders struct {
	engine   *tool.Engine
	sessions []*tool.Session
	ended    chan error
}

// attachBeside attaches tools without flags.
func attachBeside(e *tool.Engine, names []string) (*bystanders, error) {
	b := &bystanders{engine: e, ended: make(chan error, len(names))}
	for _, name := range names {
		p, err := prepare(name, nil)
		if err != nil {
			return nil, err
		}
		s, err := e.Attach(p)
		if err != nil {
			return nil, fmt.Errorf("beside it: %w", err)
		}
		b.sessions = append(b.sessions, s)
	}
	return b, nil
}

func (b *bystanders) start(ctx context.Context) {
	if b == nil {
		return
	}
	for _, s := range b.sessions {
		go func() {
			_, err := s.Run(ctx, discard{})
			b.ended <- err
		}()
	}
}

// end ends them and returns their errors.
func (b *bystanders) end(stop func()) error {
	stop()
	if b == nil {
		return nil
	}
	var errs []error
	for range b.sessions {
		errs = append(errs, <-b.ended)
	}
	b.engine.Close()
	return errors.Join(errs...)
}

// discard is a sink that shows nothing.
type discard struct{}

func (discard) Row(*row.Row) error { return nil }
func (discard) End(row.End) error  { return nil }
