// SPDX-License-Identifier: Apache-2.0

package tool

import (
	"maps"
	"math/bits"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/cilium/ebpf"

	"seine/internal/probe"
)

// noticeRing is the ring of a tool that sends notices and no events.
const noticeRing = 64 << 10

// size gives the ring what --buffer says, and the maps together no more than
// --memory. Maps of counts get what the others leave, and at least half.
func (p *Prepared) size() error {
	used := probe.Uses(p.spec, p.Points)
	if o, ok := ownerOptionsOf(p.spec); ok && o&ownerListeners == 0 {
		used[listenersMap] = false // only by code that is switched off
	}
	if err := p.sizeRing(used["events"]); err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	shown := map[string]bool{}
	for _, v := range p.Views {
		if s, ok := v.Output.(interface{ mapName() string }); ok {
			shown[s.mapName()] = true
			shown[s.mapName()+odd] = p.opts.Interval > 0
		}
	}
	var asked uint64
	var counted, others []string
	fixed, err := p.sizeSeen()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.spec.Maps)) {
		m := p.spec.Maps[name]
		counts := p.spec.Maps[name+odd] != nil || strings.HasSuffix(name, odd)
		switch {
		case m.Type == ebpf.RingBuf:
			continue
		case counts && !shown[name]: // nothing is written to it
			m.MaxEntries = 1
			fixed += mapBytes(m, cpus)
			continue
		case counts && m.Type == ebpf.Hash:
			counted = append(counted, name)
			continue
		case name == ownMap: // as large as the table of owners, if that is shared
			m.MaxEntries = 1
			fixed += mapBytes(m, cpus)
			continue
		case name == ownersMap:
			// A larger --memory makes room for connections that come later.
			m.MaxEntries = max(ownerEntries(), uint32(min(ownersLeast*p.opts.Memory/DefaultMemory, maxEntries)))
		case strings.HasPrefix(name, "filter_"): // as many as the filters have
			fixed += mapBytes(m, cpus)
			continue
		case p.spec.Variables[name+sets] != nil: // a cache: it need not be as large as it is
			m.MaxEntries = uint32(max(1, min(uint64(m.MaxEntries)*p.opts.Memory/DefaultMemory, uint64(m.MaxEntries))))
		case m.Type != ebpf.Hash && m.Type != ebpf.LRUHash && m.Type != ebpf.StackTrace && m.Type != ebpf.Queue: // as many as there are keys
			fixed += mapBytes(m, cpus)
			continue
		case !used[name]:
			m.MaxEntries = 1
			fixed += mapBytes(m, cpus)
			continue
		default:
			scaled := uint64(m.MaxEntries) * p.opts.Memory / DefaultMemory
			m.MaxEntries = uint32(max(1, min(scaled, maxEntries)))
		}
		others = append(others, name)
		asked += mapBytes(m, cpus)
	}
	least := fixed
	for _, name := range append(slices.Clone(counted), others...) {
		one := *p.spec.Maps[name]
		one.MaxEntries = 1
		least += mapBytes(&one, cpus)
	}
	p.least = least
	if p.opts.Memory >= DefaultMemory { // the default is too small where there are many processors
		p.opts.Memory = max(p.opts.Memory, least)
	} else if p.opts.Memory < least {
		return Usagef("--memory: %s needs at least %d KiB on this machine", p.Tool.Name, (least+1023)>>10)
	}
	free := p.opts.Memory - fixed
	room := free
	if len(counted) > 0 {
		room = free / 2
	}
	for _, name := range others {
		m := p.spec.Maps[name]
		if asked > room {
			share := uint64(float64(mapBytes(m, cpus)) * float64(room) / float64(asked))
			m.MaxEntries = entriesIn(m, share, cpus)
		}
		free -= min(free, mapBytes(m, cpus))
		if p.spec.Variables[name+sets] != nil {
			if err := setConstant(p.spec, name+sets, m.MaxEntries); err != nil {
				return err
			}
		}
	}
	for _, name := range counted {
		m := p.spec.Maps[name]
		m.MaxEntries = entriesIn(m, free/uint64(len(counted)), cpus)
	}
	return nil
}

// sets ends the name of a constant of the programs: how many sets an array has that is a cache.
const sets = "_sets"

// seenMost is how many sockets have an entry of seen.h with the default of --memory, and seenBytes
// what the kernel allocates for one: 192 bytes for all storage of a socket, 128 for the entry.
const (
	seenMost  = 4096
	seenBytes = 192 + 128
)

// sizeSeen limits the entries of seen.h, and returns what they may take.
func (p *Prepared) sizeSeen() (uint64, error) {
	if o, _ := ownerOptionsOf(p.spec); p.spec.Maps["seen"] == nil || !o.has("owner_send") {
		return 0, nil
	}
	most := min(seenMost*p.opts.Memory/DefaultMemory, seenMost)
	return most * seenBytes, setConstant(p.spec, "seen_most", uint32(most))
}

// Least is the smallest --memory that the tool takes here: one entry in each map.
func (p *Prepared) Least() uint64 { return p.least }

// sizeRing makes the ring as large as --buffer says, if events come by it.
func (p *Prepared) sizeRing(used bool) error {
	m := p.spec.Maps["events"]
	if m == nil {
		return nil
	}
	ring, err := ringSize(p.opts.Buffer)
	if err != nil {
		return err
	}
	if !used {
		ring = uint64(os.Getpagesize())
	} else if takesPackets(p.spec) || !slices.ContainsFunc(p.Views, func(v View) bool { return takesEvents(v.Output) }) {
		ring = min(ring, noticeRing)
	}
	m.MaxEntries = uint32(ring)
	return setConstant(p.spec, "wake_bytes", ring/4)
}

// takesEvents says whether rows of an output come by the ring.
func takesEvents(o Output) bool {
	_, no := o.(interface{ noRing() })
	return !no
}

func (s Snapshot[K, V]) mapName() string { return s.Map }

func (Snapshot[K, V]) noRing() {}
func (Poll[T]) noRing()        {}

// maxEntries is more than a map is ever given.
const maxEntries = 1 << 24

// entriesIn is how many entries a map of so many bytes has, at least one.
func entriesIn(m *ebpf.MapSpec, size uint64, cpus int) uint32 {
	try := *m
	return uint32(max(1, sort.Search(maxEntries, func(n int) bool {
		try.MaxEntries = uint32(n) + 1
		return mapBytes(&try, cpus) > size
	})))
}

// Bytes that the kernel adds to a map, as in its htab_map_mem_usage.
const (
	mapHead    = 1024 // struct bpf_htab, bpf_array, …, with what they allocate apart
	hashBucket = 16
	hashEntry  = 48 // struct htab_elem
	stackEntry = 16 + 8
	perCPU     = 48 // locks, spare entries' pointers
)

// mapBytes is the kernel memory of a map.
func mapBytes(m *ebpf.MapSpec, cpus int) uint64 {
	up := func(n uint32) uint64 { return (uint64(n) + 7) &^ 7 }
	n, c := uint64(m.MaxEntries), uint64(cpus)
	page := uint64(os.Getpagesize())
	switch m.Type {
	case ebpf.Hash, ebpf.LRUHash:
		buckets := uint64(1) << bits.Len64(n-1) * hashBucket
		if m.Type == ebpf.Hash {
			n += c // an update of an entry takes a spare one
		}
		return mapHead + perCPU*c + buckets + n*(hashEntry+up(m.KeySize)+up(m.ValueSize))
	case ebpf.StackTrace:
		return mapHead + uint64(1)<<bits.Len64(n-1)*(stackEntry+up(m.ValueSize))
	case ebpf.PerCPUArray:
		return mapHead + n*(8+c*up(m.ValueSize))
	case ebpf.Array:
		if m.Flags&mmapable != 0 || strings.HasPrefix(m.Name, ".") {
			return page + (n*up(m.ValueSize)+page-1)&^(page-1)
		}
		return mapHead + n*up(m.ValueSize)
	case ebpf.LPMTrie:
		return n * (hashEntry + up(m.KeySize) + up(m.ValueSize))
	}
	return mapHead + n*(up(m.KeySize)+up(m.ValueSize))
}

// Flags of maps.
const (
	noPrealloc = 1 << 0  // BPF_F_NO_PREALLOC
	mmapable   = 1 << 10 // BPF_F_MMAPABLE
)

// manySockets is how many sockets the map of owners has room for if memory is allocated by use
// and the budget allows it: there may be far more sockets later than there are now.
const manySockets = 1 << 17

// allocator is a function of the allocator for BPF.
const allocator = "bpf_mem_alloc_init"

// allocateByUse makes hash maps allocate memory for each entry when it is added, on kernels that
// can do that in any context: from 6.1 on, which have an allocator for BPF. Before, a whole map
// is allocated when it is created.
func (p *Prepared) allocateByUse(k *probe.Kernel) error {
	if !k.HasFunc(allocator) {
		return nil
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	var asked uint64
	for _, m := range p.spec.Maps {
		if m.Type == ebpf.Hash {
			m.Flags |= noPrealloc
		}
		if m.Type != ebpf.RingBuf {
			asked += mapBytes(m, cpus)
		}
	}
	if o := p.spec.Maps[ownersMap]; o != nil && o.MaxEntries > 1 && asked < p.opts.Memory {
		most := entriesIn(o, mapBytes(o, cpus)+p.opts.Memory-asked, cpus)
		o.MaxEntries = max(o.MaxEntries, min(most, manySockets))
	}
	return nil
}

// memory is what the kernel says that the maps and the ring take. Before 6.4 it
// estimates.
func memory(all map[string]*ebpf.Map) (maps, ring uint64) {
	for _, m := range all {
		info, err := m.Info()
		if err != nil {
			continue
		}
		n, _ := info.Memlock()
		if m.Type() == ebpf.RingBuf {
			ring += n
		} else {
			maps += n
		}
	}
	return maps, ring
}
