// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"path/filepath"
	"testing"
)

func TestModule(t *testing.T) {
	dir := t.TempDir()
	loaded, installed := filepath.Join(dir, "sys"), filepath.Join(dir, "lib")
	for name, text := range map[string]string{
		"sys/cfg80211/initstate":   "live\n",
		"sys/tcp_cubic/parameters": "",
		"lib/modules.dep":          "kernel/net/mac80211.ko.xz: kernel/net/cfg80211.ko.xz\nkernel/net/cfg80211.ko.xz:\nkernel/snd-pcm.ko:\n",
		"lib/modules.builtin":      "kernel/net/ipv6/ipv6.ko\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]ModuleState{
		"cfg80211": ModuleLoaded, "mac80211": ModuleInstalled, "snd_pcm": ModuleInstalled,
		"ipv6": ModuleBuiltin, "tcp_cubic": ModuleBuiltin, "rfkill": ModuleAbsent, "kernel/net/ipv6/ipv6": ModuleAbsent,
	} {
		if got := module(loaded, installed, name); got != want {
			t.Errorf("%s: got state %d, want %d", name, got, want)
		}
	}
}
