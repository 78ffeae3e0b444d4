// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"
	"testing"
	"time"

	"seine/internal/lab"
	"seine/internal/trial"
)

// TestRests says that a reader that has had nothing to read for a while is woken by the next event, once for
// all events that come together.
func TestRests(t *testing.T) {
	_, err := trial.RunCase(t.Context(), named(t, "tcplife"), trial.Case{Run: func(x *trial.Trial) error {
		const n = 3
		s, err := lab.StartTCP(x.World, lab.Sessions{Count: n, Send: 10, Brief: true})
		if err != nil {
			return err
		}
		if err := x.Attach(fmt.Sprint("--port=", s.Port)); err != nil {
			return err
		}
		time.Sleep(2500 * time.Millisecond) // silence: nothing else has to do with this port
		if _, err := s.Run(); err != nil {
			return err
		}
		if _, err := x.Exactly(2 * n); err != nil {
			return err
		}
		if w := x.Report.Wakes; w < 1 || w > 2*n {
			x.Errorf("the reader was woken %d times for %d events after a silence", w, 2*n)
		}
		return nil
	}}, "")
	if err != nil {
		t.Error(err)
	}
}
