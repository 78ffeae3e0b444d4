// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func TestArm64Image(t *testing.T) {
	image := make([]byte, 4096)
	if _, err := arm64Image(image); err == nil {
		t.Error("an image without the magic was taken")
	}
	copy(image[56:], "ARMd")
	if got, err := arm64Image(image); err != nil || !bytes.Equal(got, image) {
		t.Errorf("got %d bytes, %v, want the image as it is", len(got), err)
	}
}

// The BTF is found by lengths that fit; what only begins like one is passed over.
func TestBTFIn(t *testing.T) {
	le := binary.LittleEndian
	want := bytes.Clone(btfHead)
	for _, n := range []uint32{8, 8, 5} {
		want = le.AppendUint32(want, n)
	}
	want = append(want, "\x01\x02\x03\x04\x05\x06\x07\x08\x00int\x00"...)
	fake := le.AppendUint32(le.AppendUint32(le.AppendUint32(bytes.Clone(btfHead), 8), 12), 5)
	image := bytes.Join([][]byte{[]byte("code"), fake, []byte("data"), want, []byte("more")}, nil)
	if got, err := btfIn(image); err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	for name, image := range map[string][]byte{
		"nothing": []byte("code and data"), "lengths that do not fit": fake, "cut short": want[:len(want)-1], "its head alone": btfHead,
	} {
		if got, err := btfIn(image); err == nil {
			t.Errorf("%s: got %q, want an error", name, got)
		}
	}
}
