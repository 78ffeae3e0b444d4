// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// kept are the modules that stay in the cache, with what they depend on; a
// pattern is for names. A module that is added here needs a fetch -update.
var kept = []string{
	// links and tunnels
	"veth", "dummy", "ifb", "tun", "bridge", "8021q", "bonding", "macvlan", "ipvlan", "vxlan", "geneve",
	"ipip", "ip_gre", "sit", "ip6_tunnel", "wireguard", "virtio_net", "netdevsim",
	// queues, classifiers, actions
	"sch_*", "cls_*", "act_*",
	// sockets
	"*_diag", "tcp_*", "tls", "sctp", "vsock_loopback", "xfrm_user", "esp4", "esp6",
	// netfilter
	"nf_conntrack", "nf_nat", "nf_tables", "nft_*", "nf_log_*", "xt_conntrack", "iptable_filter",
	// radio
	"cfg80211", "mac80211", "mac80211_hwsim",
	// a Debian root; ext4 of 5.10 and 6.1 asks the crypto layer for crc32c
	"virtio_pci", "virtio_blk", "ext4", "crc32c_generic", "overlay", "virtio_console",
}

// A modules is what depmod found out: each module's file and what has to be
// loaded before it, in load order.
type modules map[string]module

type module struct {
	file  string
	needs []string
}

// parseDep reads modules.dep. There each line names all that a module needs,
// whatever is needed first standing last.
func parseDep(r io.Reader) (modules, error) {
	mods := modules{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		file, list, ok := strings.Cut(lines.Text(), ":")
		if !ok {
			return nil, fmt.Errorf("modules.dep: no colon in %q", lines.Text())
		}
		var needs []string
		for _, f := range strings.Fields(list) {
			needs = append(needs, moduleName(f))
		}
		slices.Reverse(needs)
		mods[moduleName(file)] = module{file, needs}
	}
	return mods, lines.Err()
}

// write is the inverse of parseDep, for a directory in which files have no
// folder and no compression.
func (m modules) write(w io.Writer) error {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		line := name + ".ko:"
		for _, need := range slices.Backward(m[name].needs) {
			line += " " + need + ".ko"
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}

// order is a sequence that loads names, which must exist: each once, after all
// that it needs.
func (m modules) order(names []string) []string {
	var load []string
	seen := map[string]bool{}
	for _, name := range names {
		for _, n := range append(slices.Clone(m[name].needs), name) {
			if !seen[n] {
				seen[n] = true
				load = append(load, n)
			}
		}
	}
	return load
}

// LoadOrder lists the files to load, in order, so that the named modules are in
// the kernel; those that are built in are there already. Names that this
// kernel does not have, or that are not kept in the cache, come back as missing.
func (k Kernel) LoadOrder(names ...string) (files, missing []string, err error) {
	f, err := os.Open(filepath.Join(k.Dir, "modules.dep"))
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	mods, err := parseDep(f)
	if err != nil {
		return nil, nil, fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	list, err := os.ReadFile(filepath.Join(k.Dir, "modules.builtin"))
	if err != nil {
		return nil, nil, err
	}
	builtin := map[string]bool{}
	for _, f := range strings.Fields(string(list)) {
		builtin[moduleName(f)] = true
	}
	var wanted []string
	for _, name := range names {
		n := moduleName(name)
		if _, ok := mods[n]; ok {
			wanted = append(wanted, n)
		} else if !builtin[n] {
			missing = append(missing, name)
		}
	}
	for _, n := range mods.order(wanted) {
		files = append(files, k.Module(n))
	}
	return files, missing, nil
}

// Kept reports whether a module stays in the cache of a kernel that has it.
func Kept(name string) bool {
	return slices.ContainsFunc(kept, func(pattern string) bool {
		ok, _ := path.Match(pattern, moduleName(name))
		return ok
	})
}

// Module is the path of one module, uncompressed. It need not exist.
func (k Kernel) Module(name string) string {
	return filepath.Join(k.Dir, "modules", moduleName(name)+".ko")
}

// moduleName turns a file or a name as people write it into what /proc/modules says.
func moduleName(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
