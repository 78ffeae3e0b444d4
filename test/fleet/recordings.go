// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"seine/test/duckdb"
)

// fleetQuery reads the recordings of all hosts at once. It returns the number of sessions of the shop
// on each host, and the number of seconds with a p99 above 100 ms. The slowest host comes first.
const fleetQuery = `with served as (
  select host, count(*) as sessions
  from read_parquet('DIR/host=*/tcplife.parquet', hive_partitioning=true) group by host),
slow as (
  select host, count(*) filter (where p99_us > 100000) as seconds
  from read_parquet('DIR/host=*/flows.parquet', hive_partitioning=true) where side = 'in' group by host)
select host, cast(sessions as integer) as sessions, cast(seconds as integer) as seconds from served join slow using (host)
order by seconds desc, host`

// leastSlow is the least number of slow seconds on the host with the fault: its alert takes a minute.
const leastSlow = 40

// recordings ends the traffic. The metrics must have all of it, and DuckDB must find it in the
// recordings by one query.
func (f *fleet) recordings(ctx context.Context) error {
	made := 0
	for _, m := range f.hosts {
		if err := m.leave(); err != nil {
			return err
		}
		made += m.did.Sessions
	}
	f.say("the traffic has ended: %d sessions on %d hosts", made, len(f.hosts))
	differ := 0
	for i, m := range f.hosts {
		if i == isKilled {
			continue // its counters restarted at zero
		}
		if err := f.prom.is(ctx, notLonger, float64(m.did.Sessions), `sum(seine_tcp_sessions_total{instance=%q,service=%q,side="in"})`, m.instance(), service); err != nil {
			f.say("%s made %d sessions: %v", m.name, m.did.Sessions, err)
			differ++
		}
	}
	f.check(differ == 0, "Prometheus has each session of the hosts whose agent was not killed: %d of %d hosts differ", differ, len(f.hosts)-1)

	for _, m := range f.hosts {
		dir := f.path("parquet", "host="+m.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, tool := range []string{"tcplife", "flows"} {
			out, err := os.Create(dir + "/" + tool + ".parquet")
			if err != nil {
				return err
			}
			cmd := exec.CommandContext(ctx, f.seine(), tool, "--from", m.dir, "--lport", "8080", "-o", "parquet")
			cmd.Stdout = out
			var said strings.Builder
			cmd.Stderr = &said
			err = cmd.Run()
			out.Close()
			if err != nil {
				return fmt.Errorf("%s of %s: %w: %s", tool, m.name, err, said.String())
			}
		}
	}
	began := time.Now()
	text, err := duckdb.Ask(ctx, strings.ReplaceAll(fleetQuery, "DIR", f.path("parquet")))
	if err != nil {
		return err
	}
	took := time.Since(began)
	var rows []struct {
		Host     string
		Sessions int
		Seconds  int
	}
	if err := json.Unmarshal([]byte(text), &rows); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	recorded := map[string]int{}
	for i, r := range rows {
		recorded[r.Host] = r.Sessions
		if i < 3 || r.Host == f.hosts[isKilled].name {
			f.say("DuckDB: %s: %d sessions of %s, p99 above 100 ms in %d seconds", r.Host, r.Sessions, service, r.Seconds)
		}
	}
	differ = 0
	for i, m := range f.hosts {
		if got := recorded[m.name]; i != isKilled && got != m.did.Sessions {
			differ++
			f.say("%s made %d sessions, and %d are recorded", m.name, m.did.Sessions, got)
		}
	}
	f.check(len(rows) == len(f.hosts) && differ == 0, "DuckDB, one query over the recordings of %d hosts, in %.1f s: each session is there", len(rows), took.Seconds())
	// The killed agent missed the sessions while it was down, and kept the earlier ones.
	dead := f.hosts[isKilled]
	f.check(recorded[dead.name] > 0 && recorded[dead.name] < dead.did.Sessions, "%s, whose agent was killed, has %d of its %d sessions", dead.name, recorded[dead.name], dead.did.Sessions)
	f.check(len(rows) > 1 && rows[0].Host == f.hosts[hasFault].name && rows[0].Seconds >= leastSlow && rows[1].Seconds < leastSlow/2,
		"the host with the fault comes first; no other host has half as many such seconds")
	return nil
}
