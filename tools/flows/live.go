// SPDX-License-Identifier: Apache-2.0

package flows

import (
	"seine/internal/lab"
	"seine/internal/row"
	"seine/internal/trial"
)

// Live is the other live cases. Nothing of the product calls it.
func Live() []trial.Case {
	return []trial.Case{
		{Name: "services", Hosts: lab.TwoHosts, Run: grouped()},
		{Name: "services-exact", Hosts: lab.TwoHosts, Run: grouped("--exact")},
		{Name: "quiet", Hosts: lab.TwoHosts, Run: quiet},
		{Name: "intervals", Hosts: lab.TwoHosts, Run: intervals()},
		{Name: "intervals-exact", Hosts: lab.TwoHosts, Run: intervals("--exact")},
		{Name: "subflows", Hosts: lab.TwoHosts, Run: subflows("--exact")},
		{Name: "nginx", Slow: true, Hosts: lab.TwoHosts, Run: nginx()},
		{Name: "nginx-exact", Slow: true, Hosts: lab.TwoHosts, Run: nginx("--exact")},
		{Name: "http2", Slow: true, Hosts: lab.TwoHosts, Run: realServer(lab.StartNginx, http2)},
		{Name: "postgres", Slow: true, Hosts: lab.TwoHosts, Run: postgres()},
		{Name: "postgres-exact", Slow: true, Hosts: lab.TwoHosts, Run: postgres("--exact")},
		{Name: "redis", Slow: true, Hosts: lab.TwoHosts, Run: realServer(lab.StartRedis, redis)},
	}
}

// find is the row whose column id has this port.
func find(rows []*row.Row, id string, port int) *row.Row {
	for _, r := range rows {
		if r.Get(id).N == uint64(port) {
			return r
		}
	}
	return nil
}
