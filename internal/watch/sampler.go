// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"seine/internal/host"
)

// Names of counters that are not protocol counters. A name that ends with a slash is
// followed by the processor or device.
const (
	SoftnetProcessed = "SoftnetProcessed/" // packets, by processor
	SoftnetDropped   = "SoftnetDropped"    // packets dropped at a full backlog
	SoftnetSqueezed  = "SoftnetSqueezed"   // softirqs that ended with packets left
	QdiscDropped     = "QdiscDropped/"     // packets, by device
	QdiscBacklog     = "QdiscBacklog/"     // gauge: bytes that wait, by device
	QdiscOverlimits  = "QdiscOverlimits/"  // times that a shaper held packets back, by device

	TCPInUse       = "TCPInUse"       // gauge: sockets
	TCPTimeWait    = "TCPTimeWait"    // gauge: sockets
	TCPMemory      = "TCPMemory"      // gauge: pages of all TCP sockets
	TCPMemPressure = "TCPMemPressure" // gauge: pages at which memory pressure starts
	TCPMemMost     = "TCPMemMost"     // gauge: pages that TCP may have
	FilesOpen      = "FilesOpen"      // gauge
	FilesMost      = "FilesMost"      // gauge
	PortsMost      = "PortsMost"      // gauge: ports that the kernel gives to clients
	ConntrackUsed  = "ConntrackUsed"  // gauge
	ConntrackMost  = "ConntrackMost"  // gauge
)

// Counts takes the readings of a Sampler. Model and CounterRows implement it.
type Counts interface {
	// Count says by how much a counter grew.
	Count(at time.Time, k CounterKey, by int64)
	// Gauge says what something is now.
	Gauge(at time.Time, k CounterKey, value float64)
	// Local says which addresses a network namespace of this machine has.
	Local(netns uint32, addrs ...netip.Addr)
}

// A Sampler reads the kernel's counters. NewSampler opens all files, so that no
// privilege is needed afterwards. Network namespaces that are created later are not
// seen.
type Sampler struct {
	spaces []*namespace
	whole  map[string]*os.File // files of the whole machine
	before map[CounterKey]int64
	buf    []byte // for files and messages
}

// namespace is the files of a network namespace.
type namespace struct {
	inode    uint32
	counters host.CounterReader
	files    map[string]*os.File
	qdiscs   *qdiscs
	addrs    []netip.Addr
}

// mostSpaces is how many network namespaces are read.
const mostSpaces = 256

// NewSampler opens the files. It leaves out those that it cannot open.
func NewSampler() *Sampler {
	s := &Sampler{whole: map[string]*os.File{}, before: map[CounterKey]int64{}, buf: make([]byte, 64<<10)}
	for _, name := range []string{"net/softnet_stat", "sys/net/ipv4/tcp_mem", "sys/fs/file-nr"} {
		open(s.whole, name, "/proc/"+name)
	}
	for _, ns := range host.AllNetns() {
		if len(s.spaces) == mostSpaces {
			break
		}
		counters, err := ns.Open()
		if err != nil {
			continue // it ended
		}
		n := &namespace{inode: ns.Inode, counters: host.CounterReader{CounterFiles: counters}, files: map[string]*os.File{}}
		ns.Do(func() error {
			open(n.files, "sockstat", "/proc/thread-self/net/sockstat")
			open(n.files, "ports", "/proc/sys/net/ipv4/ip_local_port_range")
			open(n.files, "conntrack", "/proc/sys/net/netfilter/nf_conntrack_count")
			open(n.files, "conntrack_max", "/proc/sys/net/netfilter/nf_conntrack_max")
			n.qdiscs, _ = openQdiscs()
			all, err := net.InterfaceAddrs()
			for _, a := range all {
				if p, err := netip.ParsePrefix(a.String()); err == nil {
					n.addrs = append(n.addrs, p.Addr().Unmap())
				}
			}
			return err
		})
		s.spaces = append(s.spaces, n)
	}
	return s
}

func open(into map[string]*os.File, name, path string) {
	if f, err := os.Open(path); err == nil {
		into[name] = f
	}
}

// Close closes the files.
func (s *Sampler) Close() {
	for _, f := range s.whole {
		f.Close()
	}
	for _, n := range s.spaces {
		n.counters.Close()
		n.qdiscs.close()
		for _, f := range n.files {
			f.Close()
		}
	}
}

// Sample reads all counters. The first call only stores their values.
func (s *Sampler) Sample(m Counts, now time.Time) {
	grow := func(k CounterKey, value int64) {
		was, known := s.before[k]
		if s.before[k] = value; known && value > was {
			m.Count(now, k, value-was)
		}
	}
	for _, n := range s.spaces {
		m.Local(n.inode, n.addrs...) // each time, because a part of a recording needs them too
		s.sample(n, m, now, grow)
	}
	s.softnet(grow)
	tell := func(name string, value float64) { m.Gauge(now, CounterKey{Name: name}, value) }
	if f := fields(s.whole["sys/net/ipv4/tcp_mem"]); len(f) == 3 {
		tell(TCPMemPressure, f[1])
		tell(TCPMemMost, f[2])
	}
	if f := fields(s.whole["sys/fs/file-nr"]); len(f) == 3 {
		tell(FilesOpen, f[0])
		tell(FilesMost, f[2])
	}
}

func (s *Sampler) sample(n *namespace, m Counts, now time.Time, grow func(CounterKey, int64)) {
	var changed host.Counters
	var err error
	if changed, s.buf, err = n.counters.Changed(s.buf); err == nil {
		for name, value := range changed {
			if name != "TcpCurrEstab" && name != "TcpRtoMin" && name != "TcpRtoMax" { // gauges
				grow(CounterKey{n.inode, name}, value)
			}
		}
	}
	tell := func(name string, value float64) { m.Gauge(now, CounterKey{n.inode, name}, value) }
	for line := range strings.Lines(text(n.files["sockstat"])) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "TCP:" {
			continue
		}
		for i := 1; i+1 < len(f); i += 2 {
			value, _ := strconv.ParseFloat(f[i+1], 64)
			switch f[i] {
			case "inuse":
				tell(TCPInUse, value)
			case "tw":
				tell(TCPTimeWait, value)
			case "mem":
				m.Gauge(now, CounterKey{Name: TCPMemory}, value)
			}
		}
	}
	if f := fields(n.files["ports"]); len(f) == 2 {
		tell(PortsMost, f[1]-f[0]+1)
	}
	if used, most := fields(n.files["conntrack"]), fields(n.files["conntrack_max"]); len(used) == 1 && len(most) == 1 {
		tell(ConntrackUsed, used[0])
		tell(ConntrackMost, most[0])
	}
	for dev, q := range n.qdiscs.read(s.buf) {
		grow(CounterKey{n.inode, QdiscDropped + dev}, int64(q.dropped))
		grow(CounterKey{n.inode, QdiscOverlimits + dev}, int64(q.overlimits))
		tell(QdiscBacklog+dev, float64(q.backlog))
	}
}

// softnet reads for each processor how many packets it received and dropped, and how often
// it left packets for later.
func (s *Sampler) softnet(grow func(CounterKey, int64)) {
	var dropped, squeezed int64
	cpu := 0
	for line := range strings.Lines(text(s.whole["net/softnet_stat"])) {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		hex := func(i int) int64 { n, _ := strconv.ParseInt(f[i], 16, 64); return n }
		if len(f) > 12 {
			cpu = int(hex(12))
		}
		grow(CounterKey{Name: SoftnetProcessed + strconv.Itoa(cpu)}, hex(0))
		dropped += hex(1)
		squeezed += hex(2)
		cpu++
	}
	grow(CounterKey{Name: SoftnetDropped}, dropped)
	grow(CounterKey{Name: SoftnetSqueezed}, squeezed)
}

// text is all of a file in /proc, "" if there is none.
func text(f *os.File) string {
	if f == nil {
		return ""
	}
	var out []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := f.ReadAt(buf, int64(len(out)))
		out = append(out, buf[:n]...)
		if err != nil || n == 0 {
			return string(out)
		}
	}
}

// fields are the numbers in a file.
func fields(f *os.File) (out []float64) {
	for _, word := range strings.Fields(text(f)) {
		n, err := strconv.ParseFloat(word, 64)
		if err != nil {
			return nil
		}
		out = append(out, n)
	}
	return out
}
