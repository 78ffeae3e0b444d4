// SPDX-License-Identifier: Apache-2.0

package row

// Tee hands every row to each of the sinks. A sink that is done gets no more;
// when all are, so is the tee. Any other error ends it at once.
func Tee(sinks ...Sink) Sink { return &tee{live: sinks} }

type tee struct{ live []Sink }

func (t *tee) Row(r *Row) error { return t.each(func(s Sink) error { return s.Row(r) }) }
func (t *tee) End(e End) error  { return t.each(func(s Sink) error { return s.End(e) }) }

func (t *tee) each(do func(Sink) error) error {
	if len(t.live) == 0 {
		return Done
	}
	var live []Sink // made only when one drops out: the usual row allocates nothing
	for i, s := range t.live {
		err := do(s)
		switch {
		case err == nil:
			if live != nil {
				live = append(live, s)
			}
		case err == Done:
			if live == nil {
				live = append(make([]Sink, 0, len(t.live)), t.live[:i]...)
			}
		default:
			return err
		}
	}
	if live == nil {
		return nil
	}
	if t.live = live; len(live) == 0 {
		return Done
	}
	return nil
}

// Collect keeps what it is handed.
type Collect struct {
	Rows []*Row
	Ends []End
}

// Row keeps a clone.
func (c *Collect) Row(r *Row) error {
	c.Rows = append(c.Rows, r.Clone())
	return nil
}

// End keeps the end.
func (c *Collect) End(e End) error {
	c.Ends = append(c.Ends, e)
	return nil
}

// Count counts the rows that the sink takes, for the summary. It stands between Limit and the
// sink.
type Count struct {
	Next          Sink
	Rows, Outputs uint64
}

// Row counts the row if it was taken.
func (c *Count) Row(r *Row) error {
	err := c.Next.Row(r)
	if err == nil {
		c.Rows++
	}
	return err
}

// End counts the output if it was one.
func (c *Count) End(e End) error {
	if e.Output {
		c.Outputs++
	}
	return c.Next.End(e)
}
