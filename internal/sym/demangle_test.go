// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"strings"
	"testing"
	"time"
)

func TestDemangle(t *testing.T) {
	for name, want := range map[string]string{
		"connect":                           "connect",
		"_start":                            "_start",
		"main.(*T).Method":                  "main.(*T).Method",
		"_ZN5outer5inner4funcEi":            "outer::inner::func",
		"_ZNSt6vectorIiSaIiEE9push_backEOi": "std::vector<int, std::allocator<int> >::push_back",
		"_ZN4core3ptr13drop_in_place17h0123456789abcdefE":       "core::ptr::drop_in_place",
		"_ZN3foo3barEv.cold":                                    "foo::bar",
		"_RNvCs1234_7mycrate3foo":                               "mycrate::foo",
		"_RNvMNtCs9ltgdHTiPiY_4core6optionINtB2_6OptionjE4none": "<core::option::Option<usize>>::none",
		"_Znonsense":                           "_Znonsense",
		"_RCC0":                                "_RCC0",
		"_R":                                   "_R",
		"_Z" + strings.Repeat("N", maxMangled): "_Z" + strings.Repeat("N", maxMangled),
	} {
		got := name
		if mangled(name) {
			got = demangled(name)
		}
		if got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func FuzzDemangle(f *testing.F) {
	f.Add("_ZN5outer5inner4funcEi")
	f.Add("_RNvMNtCs9ltgdHTiPiY_4core6optionINtB2_6OptionjE4none")
	f.Add("_Z1fI" + strings.Repeat("S_IS0_", 20))
	f.Add("_Z" + strings.Repeat("P", 2000) + "i")
	f.Fuzz(func(t *testing.T, name string) {
		began := time.Now()
		got := demangled(name)
		if len(got) > max(len(name), 4096) {
			t.Errorf("%d bytes became %d", len(name), len(got))
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
