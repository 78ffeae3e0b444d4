// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"seine/internal/host"
	"seine/internal/words"
)

// The assumptions about a large fleet.
const (
	manyHosts   = 10_000
	scrapeEvery = 15.0 // seconds
	pushEvery   = 60.0
	day         = 86_400.0
	mostSeries  = 5000
)

// report is docs/FLEET.md.
func (f *fleet) report() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	var versions []string
	for _, e := range engines {
		versions = append(versions, e.name+" "+e.version)
	}
	p(`# A fleet

Agents have no server of their own. Prometheus or VictoriaMetrics scrape them, or they push to an OpenTelemetry Collector. DuckDB and
other engines that read Parquet query their recordings. [deploy/](../deploy) has the alert rules and the configuration of the
Collector. [guide/fleet.md](guide/fleet.md) describes how to set up agents.

`+"`make fleet`"+` tests this on one machine and writes this page. It needs root, Go, node and npm. It is not part of `+"`make test`"+`.
It builds the engines from their Go modules. The first build takes many minutes. After that the engines are in the user's cache.
%s assembles the Collector from its modules.

Each of the %d hosts is a network namespace with a server, `+"`%s`"+`, and a client. Each has an agent that observes this namespace
only (`+"`--netns`"+`), has its own host name, and listens on its own loopback address. The agents push every %v, one of them every %v.
Prometheus and VictoriaMetrics scrape every %v. This differs from %d machines in one point: the agents share one kernel, so the BPF
programs of each run for the traffic of all. For that reason `+"`--max-cpu`"+` is off.

## A run

Kernel %s; %s. The first column is the time since the start.
`, "[test/fleet/otelcol](../test/fleet/otelcol)", len(f.hosts), service, usualPush, oftenPush, scraped, len(f.hosts), host.KernelVersion(), strings.Join(versions, ", "))
	p("```\n%s\n```\n", strings.Join(f.lines, "\n"))
	if *quick {
		p("This run used `-quick`. It leaves out three stages of `make fleet`: the Collector down for %v, the Collector that does not\nanswer for %v, and the alert about an agent that is down.\n", downFor, slowFor)
	}
	p(`DuckDB runs this query. `+"`seine tcplife --from DIR -o parquet`"+` and `+"`seine flows --from DIR -o parquet`"+` wrote the files, in one
folder for each host:

`+"```sql\n%s\n```"+`

## What to know

- Scraped and pushed series have the label `+"`instance`"+`. For pushed ones, Prometheus takes it from `+"`service.instance.id`"+`, which an agent
  sets to its host name. So one set of alert rules works for both.
- When a series ends, for example that of a finding, it ends in Prometheus with the next scrape or push. If that push is dropped,
  Prometheus shows the last value for five minutes.
- `+"`SeineDown`"+` needs `+"`up`"+`, which only scrapes have. If agents push, add an alert for hosts that stop pushing.
- If the Collector is down, pushes wait in the agent: one hour of them at the default interval of a minute. After that the agent drops
  the oldest and counts them (`+"`seine_agent_otlp_dropped_total`"+`). Counters and histograms are cumulative, so a dropped push costs
  resolution, not counts.
- The Collector drops data that it cannot send to Prometheus within `+"`timeout`"+`. The default is 5 s, which is less than a restart takes. The
  configuration of deploy/ has five minutes.
- An agent that is killed loses its counters. Its recording stays, and the next agent continues it in the same directory.
- Native histograms need Prometheus 3.8 or later with `+"`scrape_native_histograms`"+`. The rules of deploy/ use classic histograms, so they
  also need `+"`always_scrape_classic_histograms`"+`.
`, fleetQuery)

	n := f.value("agent-series")
	p(`## What 10,000 hosts cost

Two things are measured: one agent alone on a host with two services and %.0f turns a second, for %v, and the samples and series of all
engines at the end of the run. The rest is derived. An agent never sends more series than its limit (`+"`--series`"+`, %s).
`, turnsASecond, measures, words.Thousands(mostSeries))
	p("| one agent, measured | |\n|---|---|")
	p("| processor time | %.2f %% of one processor, and %.2f %% for its BPF programs |", f.value("agent-cpu-percent"), f.value("agent-bpf-percent"))
	p("| memory, both processes, without BPF maps | %.0f MB |", f.value("agent-memory-MB"))
	p("| series | %.0f |", n)
	p("| a scrape | %.1f ms; %.0f bytes of text, %.0f with gzip; %.0f as protobuf with gzip |", f.value("scrape-ms"), f.value("scrape-text-bytes"), f.value("scrape-text-gzip-bytes"), f.value("scrape-protobuf-gzip-bytes"))
	p("| a push by OTLP, gzip | %.0f bytes |", f.value("push-bytes"))
	p("| recording | %.0f bytes a second |", f.value("recording-bytes-s"))
	p("| Prometheus | %.2f bytes a sample, %.0f bytes a series in the index of a block, %.0f bytes of memory a series |", f.value("prometheus-bytes-a-sample"), f.value("prometheus-index-bytes-a-series"), f.value("prometheus-memory-bytes-a-series"))
	p("| VictoriaMetrics | %.2f bytes a sample |\n", f.value("victoriametrics-bytes-a-sample"))
	p("These are upper bounds. The run is short: a block of two hours has longer runs of samples, which take less space each. The memory of\nPrometheus is its growth since the start, which includes its caches for queries.\n")
	p("| %s hosts, derived | %.0f series each, as here | %s series each, the limit |\n|---|---|---|", words.Thousands(manyHosts), n, words.Thousands(mostSeries))
	both := func(name, unit string, scale float64) {
		p("| %s | %s | %s |", name, amount(scale*n*manyHosts, unit), amount(scale*mostSeries*manyHosts, unit))
	}
	both("series", "", 1)
	both(fmt.Sprintf("samples a second, scraped every %.0f s", scrapeEvery), "", 1/scrapeEvery)
	both("Prometheus: disk a day", "B", f.value("prometheus-bytes-a-sample")*day/scrapeEvery)
	both("Prometheus: memory", "B", f.value("prometheus-memory-bytes-a-series"))
	both("VictoriaMetrics: disk a day", "B", f.value("victoriametrics-bytes-a-sample")*day/scrapeEvery)
	both("network, scrapes with gzip, a second", "B", f.value("scrape-text-gzip-bytes")/n/scrapeEvery)
	both(fmt.Sprintf("network, pushes every %.0f s, a second", pushEvery), "B", f.value("push-bytes")/n/pushEvery)
	p("\nA recording of such a host takes %s a day. `--budget` limits its size, by default to 1 GiB.", amount(f.value("recording-bytes-s")*day, "B"))
	return b.String()
}

// turnsASecond is the approximate rate of a visitor.
var turnsASecond = (1 + 1.0/sessionEach) / (visitEvery + usual).Seconds()

// amount is a number with three digits and a unit prefix.
func amount(n float64, unit string) string {
	for _, prefix := range []string{"", "k", "M", "G", "T"} {
		if n < 1000 {
			return strings.TrimSpace(fmt.Sprintf("%.3g %s%s", n, prefix, unit))
		}
		n /= 1000
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f P%s", n, unit))
}
