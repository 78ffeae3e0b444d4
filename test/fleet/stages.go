// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"seine/internal/agent"
)

// Addresses of the engines, and intervals of scrapes and pushes.
const (
	engineIP   = "127.0.2.1"
	promAddr   = engineIP + ":9090"
	vmAddr     = engineIP + ":8428"
	otlpAddr   = engineIP + ":4318"
	scraped    = 5 * time.Second
	usualPush  = 5 * time.Second
	oftenPush  = time.Second
	downFor    = 75 * time.Second // longer than the queue of the host that pushes often has room for
	slowFor    = 25 * time.Second
	thinks     = 250 * time.Millisecond
	atOnce     = 5 // agents that start at a time
	notLonger  = time.Minute
	retryAfter = 2 * time.Minute // agents retry within a minute
)

// Hosts with a special role, by index. The first one is host01.
const (
	pushesOften = 2
	hasFault    = 6
	isKilled    = 10
	hasLoad     = 12
)

// prove runs all stages.
func (f *fleet) prove(ctx context.Context) (err error) {
	if f.dir, err = os.MkdirTemp("", "seine-fleet"); err != nil {
		return err
	}
	for _, stage := range []struct {
		name string
		run  func(context.Context) error
		long bool
	}{
		{name: "one agent", run: f.alone},
		{name: "engines", run: f.startEngines},
		{name: "agents", run: f.startHosts},
		{name: "names", run: f.names},
		{name: "Prometheus restarts", run: f.restarts},
		{name: "fault", run: f.fault},
		{name: "p99", run: f.percentile},
		{name: "Collector down", run: f.down, long: true},
		{name: "Collector slow", run: f.slow, long: true},
		{name: "agent down", run: f.agentDown, long: true},
		{name: "recordings", run: f.recordings},
		{name: "cost", run: f.cost},
	} {
		if stage.long && *quick {
			continue
		}
		if err := stage.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", stage.name, err)
		}
	}
	return nil
}

// seine is the path of the program under test.
func (f *fleet) seine() string {
	path, err := filepath.Abs(*program)
	if err != nil {
		return *program
	}
	return path
}

// configs writes the configurations of the engines that scrape.
func (f *fleet) configs() error {
	rules, err := filepath.Abs("deploy/prometheus/alerts.yaml")
	if err != nil {
		return err
	}
	var hosts strings.Builder
	for n := 1; n <= *hostCount; n++ {
		fmt.Fprintf(&hosts, "  - {targets: ['127.0.1.%d:7346'], labels: {instance: 'host%02d:7346'}}\n", n, n)
	}
	global := fmt.Sprintf("global: {scrape_interval: %v}\n", scraped)
	job := "scrape_configs:\n- job_name: seine\n"
	native := "  scrape_native_histograms: true\n  always_scrape_classic_histograms: true\n"
	static := "  static_configs:\n" + hosts.String()
	return errors.Join(
		os.WriteFile(f.path("prometheus.yaml"), []byte(fmt.Sprintf("global: {scrape_interval: %v, evaluation_interval: %v}\nrule_files: [%q]\n", scraped, scraped, rules)+job+native+static), 0o644),
		os.WriteFile(f.path("victoria.yaml"), []byte(global+job+static), 0o644),
	)
}

func (f *fleet) startPrometheus() (err error) {
	f.prometheus, err = start(f.dir, "prometheus", "", f.engines["prometheus"], "--config.file="+f.path("prometheus.yaml"), "--storage.tsdb.path="+f.path("prometheus"),
		"--web.listen-address="+promAddr, "--web.enable-remote-write-receiver", "--web.enable-admin-api")
	return err
}

// startCollector starts the Collector with the configuration of deploy/, on the addresses of this run.
func (f *fleet) startCollector() error {
	config, err := filepath.Abs("deploy/otelcol.yaml")
	if err != nil {
		return err
	}
	f.collector, err = start(f.dir, "otelcol", "", f.engines["otelcol"], "--config="+config,
		"--config=yaml:receivers::otlp::protocols::http::endpoint: "+otlpAddr,
		"--config=yaml:exporters::prometheusremotewrite::endpoint: http://"+promAddr+"/api/v1/write",
		"--config=yaml:service::telemetry::metrics::level: none")
	return err
}

// startEngines starts Prometheus, VictoriaMetrics and the Collector.
func (f *fleet) startEngines(ctx context.Context) error {
	if err := f.configs(); err != nil {
		return err
	}
	f.prom, f.vm = server{"http://" + promAddr}, server{"http://" + vmAddr}
	if err := f.startPrometheus(); err != nil {
		return err
	}
	var err error
	if f.victoria, err = start(f.dir, "victoria-metrics", "", f.engines["victoria-metrics"], "-storageDataPath="+f.path("victoria"), "-httpListenAddr="+vmAddr,
		"-promscrape.config="+f.path("victoria.yaml"), "-search.latencyOffset=0s", "-memory.allowedPercent=5"); err != nil {
		return err
	}
	if err := f.startCollector(); err != nil {
		return err
	}
	for _, p := range []struct {
		*process
		ready string
	}{{f.prometheus, f.prom.url + "/-/ready"}, {f.victoria, f.vm.url + "/health"}} {
		if err := await(ctx, time.Minute, func() error {
			if err := p.running(); err != nil {
				return err
			}
			_, _, err := get(ctx, p.ready)
			return err
		}); err != nil {
			return err
		}
	}
	own, _, err := get(ctx, f.prom.url+"/metrics")
	f.empty = sum(string(own), "process_resident_memory_bytes")
	f.say("Prometheus, VictoriaMetrics and the OpenTelemetry Collector run")
	return err
}

// startHosts starts the agents and their traffic, and waits until all engines have series of all agents.
func (f *fleet) startHosts(ctx context.Context) error {
	for first := 0; first < *hostCount; first += atOnce {
		for n := first; n < min(first+atOnce, *hostCount); n++ {
			m, err := newMember(f, n+1)
			if err != nil {
				return err
			}
			if n == pushesOften {
				m.push = oftenPush
			}
			if err := m.startAgent(f, "http://"+otlpAddr); err != nil {
				return err
			}
		}
		for _, m := range f.hosts[first:] {
			if err := m.ready(ctx); err != nil {
				return err
			}
		}
		f.say("%d of %d agents are ready", len(f.hosts), *hostCount)
	}
	for _, m := range f.hosts {
		if err := m.visit(); err != nil {
			return err
		}
	}
	all := float64(*hostCount)
	if err := errors.Join(f.prom.is(ctx, notLonger, all, `count(up{job="seine"} == 1)`),
		f.vm.is(ctx, notLonger, all, `count(up{job="seine"} == 1)`),
		f.prom.is(ctx, notLonger, all, `count(count by (host_name) (seine_agent_series{host_name!=""}))`)); err != nil {
		return errors.Join(err, f.collector.running())
	}
	f.check(true, "Prometheus and VictoriaMetrics scrape %d agents; %d push through the Collector", *hostCount, *hostCount)
	missing, err := f.prom.ask(ctx, `count by (tool) (seine_agent_tool_missing{instance=~".*:7346"})`)
	if err != nil {
		return err
	}
	for _, s := range missing {
		f.say("%v agents have no %s", s.Value.Value, s.Metric["tool"])
	}
	f.check(len(missing) == 0, "no agent misses a tool")
	return nil
}

// names: pushed metrics have the names of the scraped ones, unless OpenTelemetry has its own name.
func (f *fleet) names(ctx context.Context) error {
	of := func(which string) (map[string]bool, error) {
		all, err := f.prom.ask(ctx, `count by (__name__) ({%s})`, which)
		out := map[string]bool{}
		for _, s := range all {
			out[s.Metric["__name__"]] = true
		}
		return out, err
	}
	var pushed, there map[string]bool
	var wrong []string
	n := 0
	err := await(ctx, notLonger, func() (err error) {
		if there, err = of(`instance="host02:7346"`); err != nil {
			return err
		}
		if pushed, err = of(`instance="host02"`); err != nil {
			return err
		}
		wrong, n = nil, 0
		for _, d := range agent.Table {
			if d.OTLP != "" || !there[d.Name] {
				continue
			}
			if n++; !pushed[d.Name] {
				wrong = append(wrong, d.Name)
			}
		}
		if len(wrong) > 0 || n < 20 {
			return fmt.Errorf("%d metrics, not pushed under their names: %v", n, wrong)
		}
		return nil
	})
	f.holds(err, "%d metrics that are pushed have the names that are scraped, and the label instance", n)
	return nil
}

// restarts kills Prometheus and starts it again. Its earlier samples must be there, and the Collector
// must deliver the pushes of the meantime.
func (f *fleet) restarts(ctx context.Context) error {
	had, err := f.prom.one(ctx, `count_over_time(up{instance="host02:7346"}[20m])`)
	if err != nil {
		return err
	}
	from := time.Now()
	if err := f.prometheus.kill(); err != nil {
		return err
	}
	if err := pause(ctx, 10*time.Second); err != nil {
		return err
	}
	if err := f.startPrometheus(); err != nil {
		return err
	}
	again := time.Now().Unix()
	if err := f.prom.is(ctx, time.Minute, float64(*hostCount), `count(timestamp(up{job="seine"}) > %d)`, again); err != nil {
		return err
	}
	has, err := f.prom.one(ctx, `count_over_time(up{instance="host02:7346"}[20m])`)
	if err != nil {
		return err
	}
	f.check(has > had, "Prometheus was killed and started again: it had %.0f scrapes of host02 before, %.0f now", had, has)
	return f.noGap(ctx, from, "while Prometheus was away", true)
}

// noGap checks that no push since the given time is missing, for the hosts that push at the usual interval.
func (f *fleet) noGap(ctx context.Context, since time.Time, when string, all bool) error {
	since = since.Add(-3 * usualPush)
	until := float64(time.Now().Unix())
	var widest float64
	var points int
	err := await(ctx, retryAfter, func() error {
		widest, points = 0, 0
		for i, m := range f.hosts {
			if i == pushesOften || i == isKilled && !all {
				continue
			}
			at, err := f.pushes(ctx, m, since)
			if err != nil {
				return err
			}
			points += len(at)
			if last := at[len(at)-1]; last < until {
				return fmt.Errorf("the last push of %s is %.0f s too old", m.name, until-last)
			}
			for k := 1; k < len(at); k++ {
				widest = max(widest, at[k]-at[k-1])
			}
		}
		if widest > 1.5*usualPush.Seconds() {
			return fmt.Errorf("%.1f s are between two pushes", widest)
		}
		return nil
	})
	f.holds(err, "%s: %d pushes, at most %.1f s apart", when, points, widest)
	return nil
}

// pushes returns the times of the pushes of a host that have arrived in Prometheus since the given time.
func (f *fleet) pushes(ctx context.Context, m *member, since time.Time) (at []float64, err error) {
	all, err := f.prom.ask(ctx, `seine_agent_series{instance=%q}[%ds]`, m.name, int(time.Since(since).Seconds()))
	if err != nil {
		return nil, err
	}
	if len(all) != 1 || len(all[0].Values) < 2 {
		return nil, fmt.Errorf("%d series of pushes of %s", len(all), m.name)
	}
	for _, p := range all[0].Values {
		at = append(at, p.At)
	}
	return at, nil
}

// fault makes the shop of one host slow, and kills the agent of another host. The alerts must name
// these two hosts only.
func (f *fleet) fault(ctx context.Context) error {
	dead, ill := f.hosts[isKilled], f.hosts[hasFault]
	began := time.Now()
	if err := dead.agent.kill(); err != nil {
		return err
	}
	if err := ill.shop.Tell(thinks.String()); err != nil {
		return err
	}
	f.say("the agent of %s is killed; %s of %s takes %v longer for each answer", dead.name, service, ill.name, thinks)
	if err := f.prom.is(ctx, notLonger, 0, `up{instance=%q}`, dead.instance()); err != nil {
		return err
	}
	f.say("up of %s is 0 after %.0f s", dead.instance(), time.Since(began).Seconds())
	var found []alert
	err := await(ctx, 3*time.Minute, func() (err error) {
		if found, err = f.prom.firing(ctx, "SeineFinding"); err != nil {
			return err
		}
		scraped, pushed := false, false
		for _, a := range found {
			if a.Labels["class"] == "app-slow" && a.Labels["object"] == service {
				scraped = scraped || a.Labels["instance"] == ill.instance()
				pushed = pushed || a.Labels["instance"] == ill.name
			}
		}
		if !scraped || !pushed {
			return fmt.Errorf("scraped: %v, pushed: %v, of %d alerts", scraped, pushed, len(found))
		}
		return nil
	})
	after := time.Since(began)
	f.holds(err, "the alert names host and service, by what is scraped and by what is pushed, after %.0f s", after.Seconds())
	f.figure("alert-seconds", after.Seconds(), "%.0f", after.Seconds())
	others := 0
	for _, a := range found {
		f.say("alert: %s", a.Annotations["summary"])
		if at := a.Labels["instance"]; at != ill.instance() && at != ill.name {
			others++
		}
	}
	f.check(others == 0, "%d alerts are about other hosts", others)
	f.holds(f.vm.is(ctx, notLonger, 1, `count(seine_finding{instance=%q,class="app-slow",object=%q})`, ill.instance(), service), "VictoriaMetrics has the same finding")
	if err := ill.shop.Tell("0s"); err != nil {
		return err
	}
	healed := time.Now()
	err = await(ctx, time.Minute, func() error {
		all, err := f.prom.firing(ctx, "SeineFinding")
		for _, a := range all {
			err = errors.New(a.Annotations["summary"])
		}
		return err
	})
	f.holds(err, "the fault has ended: all alerts end after %.0f s", time.Since(healed).Seconds())
	return nil
}

// down kills the Collector for some time. The pushes that fit into the agents' queues must arrive. The
// agents must count the others.
func (f *fleet) down(ctx context.Context) error {
	from := time.Now()
	if err := f.collector.kill(); err != nil {
		return err
	}
	f.say("the Collector is killed for %v", downFor)
	if err := pause(ctx, downFor); err != nil {
		return err
	}
	if err := f.startCollector(); err != nil {
		return err
	}
	if err := f.noGap(ctx, from, fmt.Sprintf("the Collector was down for %v", downFor), false); err != nil {
		return err
	}
	// The host that pushes often lost the pushes that did not fit into its queue. It counts them.
	m := f.hosts[pushesOften]
	var dropped float64
	var missing int
	err := await(ctx, retryAfter, func() (err error) {
		if dropped, err = f.prom.one(ctx, `seine_agent_otlp_dropped_total{instance=%q}`, m.name); err != nil {
			return err
		}
		at, err := f.pushes(ctx, m, from.Add(-3*usualPush))
		if err != nil {
			return err
		}
		missing = int((at[len(at)-1]-at[0])/oftenPush.Seconds()+0.5) + 1 - len(at)
		if float64(missing) != dropped {
			return errors.New("some are under way")
		}
		return nil
	})
	f.check(err == nil && dropped > 0 && float64(missing) == dropped, "%s, which pushes every %v, has no room for %v of that: it counts %.0f dropped pushes, and %d are missing", m.name, oftenPush, downFor, dropped, missing)
	return nil
}

// slow stops the Collector for some time: it accepts connections but does not answer.
func (f *fleet) slow(ctx context.Context) error {
	from := time.Now()
	if err := f.collector.signal(unix.SIGSTOP); err != nil {
		return err
	}
	f.say("the Collector is stopped for %v", slowFor)
	err := pause(ctx, slowFor)
	if err := errors.Join(err, f.collector.signal(unix.SIGCONT)); err != nil {
		return err
	}
	return f.noGap(ctx, from, fmt.Sprintf("the Collector did not answer for %v", slowFor), false)
}

// agentDown: the alert names the host whose agent was killed. It ends when the agent runs again.
func (f *fleet) agentDown(ctx context.Context) error {
	m := f.hosts[isKilled]
	f.say("waiting for the alert about the agent of %s, which takes five minutes", m.name)
	var found []alert
	err := await(ctx, 6*time.Minute, func() (err error) {
		if found, err = f.prom.firing(ctx, "SeineDown"); err == nil && len(found) == 0 {
			err = errors.New("it does not fire")
		}
		return err
	})
	f.check(err == nil && len(found) == 1 && found[0].Labels["instance"] == m.instance(), "the alert about an agent that is down names %s alone", m.instance())
	for _, a := range found {
		f.say("alert: %s", a.Annotations["summary"])
	}
	if err := m.startAgent(f, "http://"+otlpAddr); err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	err = await(ctx, time.Minute, func() error {
		all, err := f.prom.firing(ctx, "SeineDown")
		if len(all) > 0 {
			err = errors.New("it fires")
		}
		return err
	})
	f.holds(err, "the agent is started again: the alert ends")
	return nil
}
