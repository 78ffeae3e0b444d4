// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"seine/internal/enrich"
	"seine/internal/journal"
	"seine/internal/record"
	"seine/internal/row"
	"seine/internal/tool"
)

// A tee records the rows of a run while they are shown.
type tee struct {
	rec  *record.Recorder
	head row.Sink
}

func (r *run) tee(o tool.Options, pipe *row.Pipe, names *enrich.Names) (*tee, error) {
	rec, err := record.Open(r.flags.from.tee, record.Options{
		Options: journal.Options{Streams: 1}, Machine: machine(), Netns: netnsNamer(), User: userName,
	})
	if err != nil {
		return nil, err
	}
	stream := rec.Stream(r.source(r.flags.given, o), r.prepared.Schemas, r.prepared.Views[0].Above)
	stream.Start(r.start)
	r.above = stream.Above
	next := row.Tee(stream, ending{pipe.Head(r.made())})
	return &tee{rec, row.Name(next, nil, r.namers(names))}, nil
}

func (t *tee) close() error { return t.rec.Close() }

// ending ends the run when enough rows were shown, as without a recording.
type ending struct{ row.Sink }

func (e ending) Row(r *row.Row) error { return enough(e.Sink.Row(r)) }
func (e ending) End(n row.End) error  { return enough(e.Sink.End(n)) }

// enough marks an error that a Tee returns at once.
func enough(err error) error {
	if err == row.Done {
		return errors.Join(row.Done)
	}
	return err
}
