// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCapabilityNames(t *testing.T) {
	for c, want := range map[Capability]string{
		0: "CAP_CHOWN", CapDACReadSearch: "CAP_DAC_READ_SEARCH", CapNetAdmin: "CAP_NET_ADMIN", CapSysPtrace: "CAP_SYS_PTRACE",
		CapSysAdmin: "CAP_SYS_ADMIN", CapSysResource: "CAP_SYS_RESOURCE", CapPerfmon: "CAP_PERFMON", CapBPF: "CAP_BPF",
		unix.CAP_LAST_CAP: "CAP_CHECKPOINT_RESTORE", 41: "CAP_41", -1: "CAP_-1",
	} {
		if got := c.String(); got != want {
			t.Errorf("%d: got %s, want %s", int(c), got, want)
		}
	}
	if len(capNames) != unix.CAP_LAST_CAP+1 {
		t.Errorf("%d names for %d capabilities", len(capNames), unix.CAP_LAST_CAP+1)
	}
}

func capsOf(caps ...Capability) (s capSet) {
	for _, c := range caps {
		s |= 1 << c
	}
	return s
}

func TestMissing(t *testing.T) {
	for _, test := range []struct {
		held capSet
		need Need
		want []Capability
	}{
		{0, NeedTrace, []Capability{CapBPF, CapPerfmon}},
		{capsOf(CapBPF), NeedTrace, []Capability{CapPerfmon}},
		{capsOf(CapBPF, CapPerfmon), NeedTrace, nil},
		{capsOf(CapSysAdmin), NeedTrace, nil},
		{capsOf(CapBPF, CapPerfmon), NeedCgroup, []Capability{CapNetAdmin}},
		{capsOf(CapNetAdmin), NeedCgroup, nil},
		{capsOf(CapSysAdmin), NeedCgroup, nil},
		{capsOf(CapSysAdmin), NeedProc, []Capability{CapSysPtrace}},
		{capsOf(CapSysPtrace), NeedProc, nil},
		{capsOf(CapSysPtrace), NeedMount, []Capability{CapSysAdmin}},
	} {
		if got := test.held.missing(test.need); !reflect.DeepEqual(got, test.want) {
			t.Errorf("held %#x, need %d: got %v, want %v", uint64(test.held), test.need, got, test.want)
		}
	}
}

func TestParseCapEff(t *testing.T) {
	for in, want := range map[string]capSet{
		"Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t000001fffeffffff\nCapBnd:\t0\n": 0x1fffeffffff,
		"CapEff:\t0000000000000000\n": 0,
		"CapEff:\tzz\n":               0,
		"CapPrm:\t01\n":               0,
		"":                            0,
	} {
		if got := parseCaps([]byte(in), "CapEff:"); got != want {
			t.Errorf("%q: got %#x, want %#x", in, uint64(got), uint64(want))
		}
	}
}

// TestHasCap compares with capget(2), and looks again from a user namespace.
func TestHasCap(t *testing.T) {
	if os.Getenv("SEINE_USERNS") != "" {
		os.Stdout.WriteString("missing " + strings.Join(Caps(), " ") + "\n")
		return
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	if InUserNamespace() {
		t.Skip("in a user namespace")
	}
	for c := Capability(0); c <= unix.CAP_LAST_CAP; c++ {
		want := data[c/32].Effective>>(c%32)&1 == 1
		if got := HasCap(c); got != want {
			t.Errorf("%s: got %v, want %v", c, got, want)
		}
	}
	if HasCap(64) || HasCap(-1) {
		t.Error("has a capability that does not exist")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHasCap$")
	cmd.Env = append(os.Environ(), "SEINE_USERNS=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("user namespaces: %v", err)
	}
	if want := "missing CAP_BPF CAP_PERFMON CAP_NET_ADMIN CAP_SYS_PTRACE\n"; !strings.Contains(string(out), want) {
		t.Errorf("as root of a user namespace: got %s, want %s", out, want)
	}
}
