// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"slices"
	"strings"

	"seine/internal/enrich"
	"seine/internal/names"
	"seine/internal/row"
	"seine/internal/tool"
)

// cutSubnets takes the prefix lengths out of --by: raddr/24 groups by raddr, and only
// its network is shown. Addresses without a length have those of --subnets.
func (c *common) cutSubnets(views []tool.View) error {
	ids := strings.Split(c.by, ",")
	if err := c.listSubnets(ids, views); err != nil {
		return err
	}
	for i, w := range ids {
		id, length, ok := strings.Cut(w, "/")
		if !ok {
			continue
		}
		s, err := row.ParseSubnet(length)
		if err != nil {
			return tool.Usagef("--by %s: %v", w, err)
		}
		if c.subnets == nil {
			c.subnets = map[string]row.Subnet{}
		}
		c.subnets[strings.TrimSpace(id)], ids[i] = s, id
	}
	c.by = strings.Join(ids, ",")
	return nil
}

// listSubnets has the addresses among ids grouped by the networks of --subnets.
func (c *common) listSubnets(ids []string, views []tool.View) error {
	if c.networks == "" {
		return nil
	}
	s, err := row.ParseSubnets(c.networks)
	if err != nil {
		return tool.Usagef("--subnets: %v", err)
	}
	c.subnets = map[string]row.Subnet{}
	for _, id := range ids {
		if id = strings.TrimSpace(id); slices.ContainsFunc(views, func(v tool.View) bool { return isAddr(v, id) }) {
			c.subnets[id] = s
		}
	}
	if len(c.subnets) == 0 {
		return tool.Usagef("--subnets: group by an address too: --by raddr")
	}
	return nil
}

// isAddr reports whether a column of v has addresses.
func isAddr(v tool.View, id string) bool {
	s, err := v.Output.Schema()
	if err != nil {
		return false
	}
	i := s.Index(id)
	return i >= 0 && s.Columns[i].Kind == row.Addr
}

// showSubnets makes columns show networks in place of addresses.
func (r *run) showSubnets() error {
	for id := range r.flags.subnets {
		for _, s := range r.prepared.Schemas {
			i := s.Index(id)
			if i < 0 {
				continue // --by chooses the columns
			}
			if s.Columns[i].Kind != row.Addr {
				return tool.Usagef("--by %s/…: %s is not an address", id, id)
			}
			s.Columns[i].Kind, s.Columns[i].As = row.Text, subnetOf(id)
		}
	}
	return nil
}

// namers returns the namers of all columns that this run may show, except those of
// networks, because a recording has whole addresses.
func (r *run) namers(n *enrich.Names) map[string]row.Namer {
	out := maps.Clone(n.Namers())
	if r.remote != nil {
		out[names.Column] = r.remote.Namer
	}
	for id := range r.flags.subnets {
		out[subnetOf(id)] = keep
	}
	return out
}

// made returns the namers of rows that already have names: only networks are left.
func (r *run) made() map[string]row.Namer {
	out := map[string]row.Namer{}
	for _, s := range r.prepared.Schemas {
		for i := range s.Columns {
			out[s.Columns[i].As] = keep
		}
	}
	for id, s := range r.flags.subnets {
		out[subnetOf(id)] = s.Namer
	}
	return out
}

// live returns the namers of rows that come from the kernel and are shown at once.
func (r *run) live(n *enrich.Names) map[string]row.Namer {
	out := r.namers(n)
	for id, s := range r.flags.subnets {
		out[subnetOf(id)] = s.Namer
	}
	return out
}

func keep(*row.Row, *row.Cell) {}

// subnetOf names the namer of a column that shows networks.
func subnetOf(id string) string { return "subnet " + id }
