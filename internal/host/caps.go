// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Capability is one of capabilities(7).
type Capability int

// The capabilities that matter to seine.
const (
	CapDACOverride   Capability = 1
	CapDACReadSearch Capability = 2
	CapNetAdmin      Capability = 12
	CapSysPtrace     Capability = 19
	CapSysAdmin      Capability = 21
	CapSysResource   Capability = 24
	CapSyslog        Capability = 34
	CapPerfmon       Capability = 38 // since 5.8
	CapBPF           Capability = 39 // since 5.8
)

var capNames = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}

// String is the name that capabilities(7) uses: CAP_BPF.
func (c Capability) String() string {
	if c < 0 || int(c) >= len(capNames) {
		return "CAP_" + strconv.Itoa(int(c))
	}
	return "CAP_" + capNames[c]
}

// HasCap reports whether this process has the capability in the initial user
// namespace. Root of another user namespace has all capabilities in that namespace
// only.
func HasCap(c Capability) bool { return effective().has(c) }

// InUserNamespace reports whether this process is in a user namespace of its own
// (a rootless container), where being root does not help.
func InUserNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/user")
	return err == nil && link != "user:[4026531837]"
}

// InPIDNamespace reports whether this process is in a PID namespace of its own (a
// container), where processes have other ids than BPF programs see.
func InPIDNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err == nil && link != "pid:[4026531836]"
}

// PIDNamespace is the inode of this process's PID namespace, 0 if it is not
// known.
func PIDNamespace() uint32 {
	var inode uint32
	link, _ := os.Readlink("/proc/self/ns/pid")
	fmt.Sscanf(link, "pid:[%d]", &inode)
	return inode
}

// A Need is an operation of seine that needs privileges.
type Need int

// The needs. Every tool has the first one.
const (
	NeedTrace  Need = iota // loading and attaching tracing programs, reading their maps
	NeedCgroup             // programs on cgroups: those that see packets and sockets
	NeedProc               // /proc of other users' processes: open sockets, namespaces, symbols
	NeedMount              // private mounts of cgroup2 and tracefs
)

// Missing names the capabilities without which this process cannot do it.
func (n Need) Missing() []Capability { return effective().missing(n) }

// Caps names the capabilities that loading programs, cgroup programs and others'
// /proc need and that this process does not have. CAP_SYS_RESOURCE is not among
// them, because it helps only before 5.11: see Memlock.
func Caps() (missing []string) {
	held := effective()
	for _, need := range []Need{NeedTrace, NeedCgroup, NeedProc} {
		for _, c := range held.missing(need) {
			missing = append(missing, c.String())
		}
	}
	return missing
}

// A capSet has bit c set for each Capability c.
type capSet uint64

func (s capSet) has(c Capability) bool { return c >= 0 && c < 64 && s>>c&1 == 1 }

func (s capSet) missing(need Need) []Capability {
	var want []Capability
	switch need {
	case NeedTrace:
		want = []Capability{CapBPF, CapPerfmon}
	case NeedCgroup:
		want = []Capability{CapNetAdmin}
	case NeedProc:
		want = []Capability{CapSysPtrace}
	case NeedMount:
		want = []Capability{CapSysAdmin}
	}
	// CAP_SYS_ADMIN includes the first two, which were split off it in 5.8.
	if (need == NeedTrace || need == NeedCgroup) && s.has(CapSysAdmin) {
		return nil
	}
	var missing []Capability
	for _, c := range want {
		if !s.has(c) {
			missing = append(missing, c)
		}
	}
	return missing
}

func effective() capSet {
	// Each thread has its own capabilities. /proc/self shows those of the
	// first thread, which may differ.
	status, err := os.ReadFile("/proc/thread-self/status")
	if err != nil || InUserNamespace() {
		return 0
	}
	return parseCaps(status, "CapEff:")
}

// parseCaps reads one set of capabilities of a status file, such as "CapEff:".
func parseCaps(status []byte, name string) capSet {
	for line := range bytes.Lines(status) {
		if value, ok := bytes.CutPrefix(line, []byte(name)); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(string(value)), 16, 64)
			if err != nil {
				return 0
			}
			return capSet(set)
		}
	}
	return 0
}
