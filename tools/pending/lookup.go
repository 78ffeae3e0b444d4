// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/cilium/ebpf"

	"seine/internal/family"
	"seine/internal/kern"
	"seine/internal/tool"
)

// question is the name and type of a lookup.
type question struct{ name, typ string }

const dnsPort = 53

// lookups adds the queries that have no answer. It leaves out queries whose socket was
// gone when the walk began.
func (c *config) lookups(s *tool.Session, began kern.Mono, asks map[uint64]bool, add func(*hang)) error {
	c.names = c.names[:0]
	m, now := s.Maps["queries"], kern.MonoNow()
	var gone []family.DNSKey
	err := tool.Walk(m, func(key, value []byte) error {
		var k family.DNSKey
		var q family.DNSQuery
		copy(bytesOf(&k), key)
		copy(bytesOf(&q), value)
		switch {
		case uint64(q.Start) == kern.None || q.Start > began:
			// The entry is not filled in yet, or its socket may be
			// newer than the walk.
		case !asks[k.Sock]:
			gone = append(gone, k)
		default:
			c.names = append(c.names, nameOf(&q))
			h := hangOf(&k, &q, now)
			h.Name.V = uint64(len(c.names))
			h.Sk = h.Name.V
			add(&h)
		}
		return nil
	})
	// Aborted: keys were added and deleted meanwhile; the next walk finds
	// the rest.
	if err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return err
	}
	for i := range gone {
		if err := m.Delete(&gone[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("map queries: %w", err)
		}
	}
	return nil
}

func bytesOf[T any](t *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(t)), unsafe.Sizeof(*t))
}

func nameOf(q *family.DNSQuery) (out question) {
	name, typ, ok := q.Name()
	if out.name = name; ok {
		out.typ = kern.DNSType(typ)
	}
	return out
}

func hangOf(k *family.DNSKey, q *family.DNSQuery, now kern.Mono) hang {
	h := hang{What: lookup, Bytes: kern.Opt(kern.None), Count: kern.Opt(kern.None), Retries: uint16(min(q.Retries, math.MaxUint16))}
	h.TS, h.Netns, h.Who = now, kern.ID32(q.Netns), q.Who
	h.Laddr, h.Raddr, h.Lport, h.Rport = q.Laddr, k.Server, q.Lport, dnsPort
	h.Family, h.Proto, h.Sock = kern.Family(q.Family), kern.Proto(k.Proto), kern.ID(k.Sock)
	h.Age = kern.Nanos(now - q.Start)
	return h
}
