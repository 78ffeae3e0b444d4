// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// at returns the labels of metrics about a container. All except more can have any number of values.
func at(what string, more ...string) []string { return slices.Concat([]string{what}, place, more) }

// who returns the labels of metrics about a service.
func who(more ...string) []string { return at("service", slices.Concat([]string{"side"}, more)...) }

// Names of metrics. Table describes each.
const (
	turnSeconds       = "seine_turn_seconds"
	firstSeconds      = "seine_first_byte_seconds"
	timeSeconds       = "seine_tcp_time_seconds_total"
	serviceConns      = "seine_tcp_connections"
	sentBytes         = "seine_tcp_sent_bytes_total"
	receivedBytes     = "seine_tcp_received_bytes_total"
	connects          = "seine_tcp_connects_total"
	connectSeconds    = "seine_tcp_connect_seconds"
	accepts           = "seine_tcp_accepts_total"
	acceptSeconds     = "seine_tcp_accept_wait_seconds"
	retransmits       = "seine_tcp_retransmits_total"
	sessions          = "seine_tcp_sessions_total"
	sessionSeconds    = "seine_tcp_session_seconds"
	resets            = "seine_tcp_resets_total"
	drops             = "seine_packet_drops_total"
	queries           = "seine_dns_queries_total"
	querySeconds      = "seine_dns_query_seconds"
	lookups           = "seine_lookups_total"
	lookupSeconds     = "seine_lookup_seconds"
	listenDrops       = "seine_listen_queue_drops_total"
	listenDepth       = "seine_listen_queue_depth"
	kernelCounters    = "seine_kernel_events_total"
	finding           = "seine_finding"
	agentInfo         = "seine_agent_build_info"
	agentCPU          = "seine_agent_cpu_seconds_total"
	agentBPF          = "seine_agent_bpf_seconds_total"
	agentMemory       = "seine_agent_resident_memory_bytes"
	agentSeries       = "seine_agent_series"
	agentSeriesLimit  = "seine_agent_series_limit"
	agentRefused      = "seine_agent_label_sets_refused_total"
	agentOverflow     = "seine_agent_values_as_other_total"
	agentEvicted      = "seine_agent_label_sets_evicted_total"
	agentRows         = "seine_agent_rows_total"
	agentLost         = "seine_agent_lost_events_total"
	agentUnseen       = "seine_agent_tool_missing"
	agentModelEvicted = "seine_agent_model_evicted_total"
	agentModelRefused = "seine_agent_model_refused_rows_total"
	agentShed         = "seine_agent_shed"
	agentFront        = "seine_agent_front_starts_total"
	agentLogs         = "seine_agent_log_lines_suppressed_total"
	agentOTLPDropped  = "seine_agent_otlp_dropped_total"
	recorderOldest    = "seine_recorder_oldest_timestamp_seconds"
	recorderBytes     = "seine_recorder_size_bytes"
	recorderLost      = "seine_recorder_lost_rows_total"
)

// Table is every metric of the agent without a config file. It is the only place of their names,
// help, types and labels. docs/METRICS.md is generated from it.
var Table = []Desc{
	{Name: turnSeconds, Type: Histogram, Labels: who(), Wide: 4, Unit: "s", From: "flows",
		Help: "Time of turns. Side in: from the first byte of a request until its answer was delivered; out: from the first byte sent until the last byte of the answer was read."},
	{Name: firstSeconds, Type: Histogram, Labels: who(), Wide: 4, Unit: "s", From: "flows",
		Help: "Time from a request to the first byte of its answer, on the side that asks."},
	{Name: timeSeconds, Type: Counter, Labels: who("part"), Wide: 4, Unit: "s", From: "flows",
		Help: "Where the time of connections went. The parts of a connection add up to its whole time."},
	{Name: serviceConns, Type: Gauge, Labels: who(), Wide: 4, OTLP: "seine.tcp.connections", Unit: "{connection}", From: "flows",
		Help: "Connections of a service in the last second in which it was active."},
	{Name: sentBytes, Type: Counter, Labels: who(), Wide: 4, Unit: "By", From: "flows", Help: "Payload bytes that a service sent."},
	{Name: receivedBytes, Type: Counter, Labels: who(), Wide: 4, Unit: "By", From: "flows", Help: "Payload bytes that a service received."},
	{Name: connects, Type: Counter, Labels: who("result"), Wide: 4, Unit: "{connection}", From: "soconnect",
		Help: "Connects that ended, by errno; result is ok where there was none."},
	{Name: connectSeconds, Type: Histogram, Labels: who(), Wide: 4, OTLP: "system.network.tcp.handshake.duration", Unit: "s", From: "soconnect",
		Help: "Time of connects that succeeded, from the call to the end of the handshake."},
	{Name: accepts, Type: Counter, Labels: who("result"), Wide: 4, Unit: "{connection}", From: "soaccept", Help: "Calls of accept that ended, by errno; result is ok where there was none."},
	{Name: acceptSeconds, Type: Histogram, Labels: who(), Wide: 4, Unit: "s", From: "soaccept", Help: "Time that calls of accept waited for a connection."},
	{Name: retransmits, Type: Counter, Labels: who("cause"), Wide: 4, OTLP: "system.network.tcp.retransmits", Attributes: map[string]string{"cause": "network.tcp.retransmit.type"}, Unit: "{segment}", From: "tcpretrans",
		Help: "Segments that were sent again, by cause."},
	{Name: sessions, Type: Counter, Labels: who("end"), Wide: 4, Unit: "{connection}", From: "tcplife", Help: "Connections that ended, by how they ended; end is orderly after a FIN from each side."},
	{Name: sessionSeconds, Type: Histogram, Labels: who(), Wide: 4, OTLP: "system.network.tcp.connection.duration", Unit: "s", From: "tcplife",
		Help: "How long connections that have ended were established."},
	{Name: resets, Type: Counter, Labels: who("by"), Wide: 4, OTLP: "system.network.tcp.resets", Unit: "{connection}", From: "tcplife", Help: "Connections that were reset, by the side that reset them."},
	{Name: drops, Type: Counter, Labels: []string{"reason", "protocol"}, Unit: "{packet}", From: "skbdrop", Help: "Packets that the kernel dropped, by the kernel's name of the reason."},
	{Name: queries, Type: Counter, Labels: at("service", "rcode"), Wide: 4, Unit: "{query}", From: "dns",
		Help: "DNS queries, by the code of the answer; TIMEOUT where none came. The service is the process and the server that it asked."},
	{Name: querySeconds, Type: Histogram, Labels: at("service"), Wide: 4, OTLP: "dns.lookup.duration", Unit: "s", From: "dns", Help: "Time from a DNS query to its answer."},
	{Name: lookups, Type: Counter, Labels: at("process", "result"), Wide: 4, Unit: "{lookup}", From: "gethostlatency",
		Help: "Lookups of names by calls of the C library, by result."},
	{Name: lookupSeconds, Type: Histogram, Labels: at("process"), Wide: 4, Unit: "s", From: "gethostlatency", Help: "Time of lookups of names by calls of the C library."},
	{Name: listenDrops, Type: Counter, Labels: at("service", "queue"), Wide: 4, Unit: "{packet}", From: "tcpsynbl", Help: "SYNs and ACKs that were dropped because a queue of a listener was full."},
	{Name: listenDepth, Type: Gauge, Labels: []string{"service", "queue"}, Wide: 1, Unit: "{connection}", From: "tcpsynbl",
		Help: "Greatest length of a listener's queue when a SYN arrived, in the last second in which one arrived."},
	{Name: kernelCounters, Type: Counter, Labels: []string{"counter"}, Unit: "{event}", From: "/proc/net/snmp, netstat, softnet_stat",
		Help: "Kernel counters that should not grow, summed over all network namespaces, under the names of nstat."},
	{Name: finding, Type: Gauge, Labels: []string{"object", "class", "severity"}, Wide: 1, Unit: "{finding}", From: "why", Help: "1 for each finding of seine why over ten seconds that ended at most five seconds ago."},

	{Name: agentInfo, Type: Gauge, Labels: []string{"version"}, Unit: "{agent}", From: "agent", Help: "1, with the version of seine."},
	{Name: agentCPU, Type: Counter, Unit: "s", From: "agent", Help: "Processor time that the agent used in user space and in system calls, both of its processes."},
	{Name: agentBPF, Type: Counter, Unit: "s", From: "agent",
		Help: "Processor time of the agent's BPF programs, estimated: they are timed for a tenth of a second every six seconds. Absent where the kernel does not let the agent time them."},
	{Name: agentMemory, Type: Gauge, Labels: []string{"process"}, Unit: "By", From: "agent", Help: "Resident memory of the agent's processes. Maps in the kernel are not in it."},
	{Name: agentSeries, Type: Gauge, Unit: "{series}", From: "agent", Help: "Series of a scrape in the text format. Each bucket counts."},
	{Name: agentSeriesLimit, Type: Gauge, Unit: "{series}", From: "agent", Help: "Limit of the series of a scrape in the text format."},
	{Name: agentRefused, Type: Counter, Unit: "{set}", From: "agent", Help: "Label sets that found no room, each counted once in ten seconds."},
	{Name: agentOverflow, Type: Counter, Unit: "{value}", From: "agent", Help: "Values that were counted under the label value other, since their own label set found no room."},
	{Name: agentEvicted, Type: Counter, Unit: "{set}", From: "agent", Help: "Label sets that were removed because nothing was counted in them for ten minutes."},
	{Name: agentRows, Type: Counter, Labels: []string{"tool"}, Unit: "{row}", From: "agent", Help: "Rows of tools that the agent has taken."},
	{Name: agentLost, Type: Counter, Labels: []string{"tool", "kind"}, Unit: "{event}", From: "agent", Help: "What tools have lost, by kind, in the words of a tool's summary. owner_unknown counts events without a process; these events are not missing."},
	{Name: agentUnseen, Type: Gauge, Labels: []string{"tool"}, Unit: "{tool}", From: "agent", Help: "1 for each tool that this kernel cannot run: its metrics are absent."},
	{Name: agentModelEvicted, Type: Counter, Labels: []string{"what"}, Unit: "{entry}", From: "agent", Help: "Entries that the model removed early for lack of room."},
	{Name: agentModelRefused, Type: Counter, Unit: "{row}", From: "agent", Help: "Rows that the model had no room for. They are counted in the metrics."},
	{Name: agentShed, Type: Gauge, Labels: []string{"tool"}, Unit: "{tool}", From: "agent", Help: "1 for each tool that the agent has ended for now, to stay within --max-cpu."},
	{Name: agentFront, Type: Counter, Unit: "{start}", From: "agent", Help: "Starts of the process that talks to the network."},
	{Name: agentLogs, Type: Counter, Unit: "{line}", From: "agent", Help: "Log lines that were not written because the same message came too often."},
	{Name: agentOTLPDropped, Type: Counter, OTLP: "seine.agent.otlp.dropped", Unit: "{push}", From: "agent",
		Help: "Pushes of metrics that were dropped: the queue was full, or the collector refused them. Absent without --otlp."},
	{Name: recorderOldest, Type: Gauge, Labels: []string{"tool"}, Unit: "s", From: "agent", Help: "Start of what the recording has of a tool, in seconds since 1970. What is older was deleted for room, or never recorded."},
	{Name: recorderBytes, Type: Gauge, Unit: "By", From: "agent", Help: "Bytes of the recording, its Parquet files included."},
	{Name: recorderLost, Type: Counter, Unit: "{row}", From: "agent", Help: "Rows that could not be recorded."},
}

// OTLPDropped is the metric of the front, which counts the pushes that it drops. All others are in the
// holder's answer.
func OTLPDropped(n uint64, since time.Time) *dto.MetricFamily {
	d := Table[slices.IndexFunc(Table, func(d Desc) bool { return d.Name == agentOTLPDropped })]
	return &dto.MetricFamily{Name: proto.String(d.Name), Help: proto.String(d.Help), Type: d.proto().Enum(),
		Metric: []*dto.Metric{{Counter: &dto.Counter{Value: proto.Float64(float64(n)), CreatedTimestamp: timestamppb.New(since)}}}}
}
