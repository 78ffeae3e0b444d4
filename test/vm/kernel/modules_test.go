// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Lines as depmod writes them: what is needed first stands last.
const dep = `kernel/drivers/net/wireless/mac80211_hwsim.ko.xz: kernel/net/mac80211/mac80211.ko.xz kernel/lib/crypto/libarc4.ko.xz kernel/net/wireless/cfg80211.ko.xz kernel/net/rfkill/rfkill.ko.xz
kernel/net/mac80211/mac80211.ko.xz: kernel/lib/crypto/libarc4.ko.xz kernel/net/wireless/cfg80211.ko.xz kernel/net/rfkill/rfkill.ko.xz
kernel/net/wireless/cfg80211.ko.xz: kernel/net/rfkill/rfkill.ko.xz
kernel/net/rfkill/rfkill.ko.xz:
kernel/lib/crypto/libarc4.ko.xz:
kernel/net/sched/sch_fq.ko.xz:
kernel/fs/some-fs.ko.zst:
`

func TestParseDep(t *testing.T) {
	mods := parse(t, dep)
	if len(mods) != 7 {
		t.Errorf("got %d modules, want 7", len(mods))
	}
	want := module{"kernel/net/mac80211/mac80211.ko.xz", []string{"rfkill", "cfg80211", "libarc4"}}
	if got := mods["mac80211"]; !reflect.DeepEqual(got, want) {
		t.Errorf("mac80211: got %v, want %v", got, want)
	}
	if got := mods["some_fs"].file; got != "kernel/fs/some-fs.ko.zst" {
		t.Errorf("some-fs goes by the name some_fs: got file %q", got)
	}
	if _, err := parseDep(strings.NewReader("no colon\n")); err == nil {
		t.Error("a line without a colon was taken")
	}
}

func TestOrder(t *testing.T) {
	mods := parse(t, dep)
	for _, c := range []struct{ names, want string }{
		{"sch_fq", "sch_fq"},
		{"mac80211_hwsim", "rfkill cfg80211 libarc4 mac80211 mac80211_hwsim"},
		{"mac80211 sch_fq mac80211_hwsim cfg80211 sch_fq", "rfkill cfg80211 libarc4 mac80211 sch_fq mac80211_hwsim"},
		{"", ""},
	} {
		got := strings.Join(mods.order(strings.Fields(c.names)), " ")
		if got != c.want {
			t.Errorf("order of %q: got %q, want %q", c.names, got, c.want)
		}
	}
}

// What fetch writes into the cache is read back with the same order.
func TestWriteDep(t *testing.T) {
	mods := parse(t, dep)
	var b bytes.Buffer
	if err := mods.write(&b); err != nil {
		t.Fatal(err)
	}
	again := parse(t, b.String())
	for name, m := range mods {
		if got := again[name]; got.file != name+".ko" || !slices.Equal(got.needs, m.needs) {
			t.Errorf("%s: got %v, want needs %v", name, got, m.needs)
		}
	}
}

func TestLoadOrder(t *testing.T) {
	k := at(origin{name: "6.12"}, t.TempDir())
	for name, text := range map[string]string{
		"modules.dep":     "sch_fq.ko:\nmac80211.ko: cfg80211.ko\ncfg80211.ko:\n",
		"modules.builtin": "kernel/drivers/virtio/virtio_pci.ko\nkernel/net/sched/sch-fq-codel.ko\n",
	} {
		if err := os.WriteFile(filepath.Join(k.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, missing, err := k.LoadOrder("virtio-pci", "sch_fq_codel", "mac80211", "no-such", "sch-fq")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{k.Module("cfg80211"), k.Module("mac80211"), k.Module("sch_fq")}
	if !slices.Equal(files, want) {
		t.Errorf("files: got %q, want %q", files, want)
	}
	if !slices.Equal(missing, []string{"no-such"}) {
		t.Errorf("missing: got %q, want no-such as it was asked for", missing)
	}
}

func TestKept(t *testing.T) {
	for name, want := range map[string]bool{
		"sch_netem": true, "mac80211-hwsim": true, "inet_diag": true, "ext4": true,
		"btrfs": false, "nouveau": false, "xsch_fq": false,
	} {
		if got := Kept(name); got != want {
			t.Errorf("Kept(%q) = %v, want %v", name, got, want)
		}
	}
}

func parse(t *testing.T, text string) modules {
	t.Helper()
	mods, err := parseDep(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return mods
}
