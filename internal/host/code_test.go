// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestCode(t *testing.T) {
	const table = "ffffffff81000000 T startup\n" +
		"ffffffff81000300 t skb_free\nffffffff81000300 t alias\n" +
		"ffffffff81000100 T skb_alloc\nffffffff81000200 D data\n" +
		"ffffffff81000400 t skb_alloc\nffffffffc0000000 t skb_lost\t[module]\n"
	got, err := code(strings.NewReader(table), []string{"skb_alloc", "skb_free", "skb_lost", "nothing"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][2]uint64{
		"skb_alloc": {0xffffffff81000100, 0xffffffff81000300},
		"skb_free":  {0xffffffff81000300, 0xffffffff81000400},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
	if _, err := code(strings.NewReader("0000000000000000 T skb_alloc\n"), []string{"skb_alloc"}); !errors.Is(err, ErrHidden) {
		t.Errorf("zeros give %v, want ErrHidden", err)
	}
}
