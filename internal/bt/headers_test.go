// SPDX-License-Identifier: Apache-2.0

package bt

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestHeaders compares the constants with those of the C compiler's headers.
func TestHeaders(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		lack(t, err)
	}
	var c strings.Builder
	c.WriteString("#define _GNU_SOURCE\n")
	for _, h := range []string{"stdio.h", "errno.h", "fcntl.h", "dirent.h", "limits.h", "signal.h", "sched.h", "time.h", "poll.h", "sys/epoll.h", "sys/socket.h", "sys/mman.h", "sys/mount.h", "sys/stat.h", "sys/resource.h",
		"sys/inotify.h", "sys/file.h", "sys/wait.h", "netinet/in.h", "netinet/tcp.h", "netinet/udp.h", "net/if.h", "net/if_arp.h", "linux/if_ether.h", "linux/futex.h", "linux/capability.h", "linux/netlink.h", "linux/magic.h", "sys/syscall.h"} {
		c.WriteString("#if __has_include(<" + h + ">)\n#include <" + h + ">\n#endif\n")
	}
	c.WriteString("int main(void) {\n")
	for _, name := range sortedKeys(headers()) {
		fmt.Fprintf(&c, "#ifdef %s\nprintf(\"%s %%lld\\n\", (long long)(%s));\n#endif\n", name, name, name)
	}
	c.WriteString("}\n")
	dir := t.TempDir()
	check(os.WriteFile(filepath.Join(dir, "h.c"), []byte(c.String()), 0o600))
	if out, err := exec.Command(cc, "-w", "-o", filepath.Join(dir, "h"), filepath.Join(dir, "h.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// What user space calls otherwise than the kernel does.
	differ := map[string]bool{"O_LARGEFILE": true, "SOCK_PACKET": true}
	n := 0
	for line := range strings.Lines(string(must(exec.Command(filepath.Join(dir, "h")).Output()))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		want := must(strconv.ParseInt(value, 10, 64))
		got := headers()[name]
		if n++; got != want && uint32(got) != uint32(want) && !differ[name] {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
	if n < 1000 {
		t.Errorf("compared %d constants, want 1000", n)
	}
}
