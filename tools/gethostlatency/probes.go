// SPDX-License-Identifier: Apache-2.0

package gethostlatency

import (
	"errors"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// probes is one program and the files that it is attached to.
type probes struct {
	libs   *libraries
	prog   *ebpf.Program
	symbol string // empty: all functions; the cookie says which one
	ret    bool
	links  []link.Link
}

// attach attaches a program to its function in all files. The first program
// finds the files.
func (l *libraries) attach(prog *ebpf.Program, ps *ebpf.ProgramSpec) (io.Closer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.probes) == 0 {
		l.begin()
		if err := l.find(); err != nil {
			l.end()
			return nil, err
		}
		done := l.done
		l.worker.Go(func() { l.work(done) })
	}
	kind, symbol, _ := strings.Cut(ps.SectionName, "/")
	p := &probes{libs: l, prog: prog, symbol: symbol, ret: strings.HasPrefix(kind, "uretprobe")}
	l.probes = append(l.probes, p)
	// A file that cannot be probed is not seen; any user may have such a file. It
	// is an error only if --lib names it, or if no file can be probed.
	var asked, other error
	for _, lib := range l.files {
		if err := p.put(lib); err != nil && lib.asked {
			asked = err
		} else if err != nil {
			other = err
		}
	}
	if len(p.links) > 0 {
		other = nil
	}
	if err := errors.Join(asked, other); err != nil {
		go p.Close() // it waits for us
		return nil, err
	}
	return p, nil
}

// put attaches the program in one file, to those of its functions that the file
// has.
func (p *probes) put(lib *library) error {
	if lib == nil {
		return nil
	}
	var addresses, cookies []uint64
	for i, name := range calls {
		symbols := []string{name}
		if name == calls[len(calls)-1] {
			symbols = lib.other
		}
		for _, symbol := range symbols {
			if at := lib.funcs[symbol]; at != 0 && (p.symbol == "" || p.symbol == name) {
				addresses, cookies = append(addresses, at), append(cookies, uint64(i))
			}
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	if p.symbol == "" {
		attach := lib.exe.UprobeMulti
		if p.ret {
			attach = lib.exe.UretprobeMulti
		}
		return p.keep(attach(nil, p.prog, &link.UprobeMultiOptions{Addresses: addresses, Cookies: cookies}))
	}
	attach := lib.exe.Uprobe
	if p.ret {
		attach = lib.exe.Uretprobe
	}
	for _, at := range addresses {
		if err := p.keep(attach("", p.prog, &link.UprobeOptions{Address: at})); err != nil {
			return err
		}
	}
	return nil
}

func (p *probes) keep(l link.Link, err error) error {
	if err == nil {
		p.links = append(p.links, l)
	}
	return err
}

// Close detaches the program from all files. Each file takes a grace period of
// the kernel, so Close waits for all of them together. The last program ends
// the search.
func (p *probes) Close() error {
	l := p.libs
	l.mu.Lock()
	l.probes = slices.DeleteFunc(l.probes, func(o *probes) bool { return o == p })
	last := len(l.probes) == 0
	if last {
		l.end()
	}
	l.mu.Unlock()
	if last {
		l.worker.Wait()
	}
	var wg sync.WaitGroup
	for _, at := range p.links {
		wg.Go(func() { at.Close() })
	}
	wg.Wait()
	return nil
}
