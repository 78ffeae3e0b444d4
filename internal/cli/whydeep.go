// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"sync"
	"time"

	"seine/internal/enrich"
	"seine/internal/tool"
	"seine/internal/watch"
	"seine/internal/why"
)

const (
	deepAfter = 4 * time.Second // then the closer look starts
	deepLeast = 2 * time.Second // the time that it needs
)

// closer is a closer look: tools that are filtered to suspicious services.
type closer struct {
	model *watch.Model
	wait  sync.WaitGroup
}

// begin attaches the tools for the suspicious services of a view. It goes on without a tool
// that cannot be attached.
func (c *closer) begin(ctx context.Context, f *whyFlags, engine *tool.Engine, view *watch.View) {
	for _, line := range why.Deeper(view, f.options()) {
		t, err := parseTaped(line)
		if err == nil {
			t.session, err = engine.Attach(t.run.prepared)
		}
		if err != nil {
			f.say("no closer look by %s: %s", line, oneLine(err))
			continue
		}
		if f.verbose > 0 {
			f.say("closer look: %s", line)
		}
		t.names = enrich.NewNames(t.session)
		c.wait.Go(func() {
			defer t.names.Close()
			head, err := t.into(c.model)
			if err == nil {
				_, err = t.session.Run(ctx, head)
			}
			if err != nil {
				f.say("%s: %s", line, oneLine(err))
			}
		})
	}
}
