// SPDX-License-Identifier: Apache-2.0

package sym

import (
	"bytes"
	"encoding/hex"
	"hash/crc32"
	"io"
	"os"
	"path"
)

const debugRoot = "/usr/lib/debug"

// findDebug looks for the file with the symbols that were stripped from f,
// which is mapped from file: by build-id in the process's root, then by
// .gnu_debuglink next to the file. One that does not belong to f is left alone.
func findDebug(p place, f *elfFile, file string) *os.File {
	id := f.buildID()
	if len(id) > 1 {
		h := hex.EncodeToString(id)
		name := debugRoot + "/.build-id/" + h[:2] + "/" + h[2:] + ".debug"
		if d := openDebug(p.root, name, id, 0); d != nil {
			return d
		}
	}
	link, crc := f.debugLink()
	if link == "" {
		return nil
	}
	dir := path.Dir(file)
	for _, dir := range []string{dir, dir + "/.debug", debugRoot + dir} {
		if d := openDebug(p.paths, path.Join(dir, link), id, crc); d != nil {
			return d
		}
	}
	return nil
}

// openDebug opens a file with symbols if it has that build-id or, when there
// is none to compare, that checksum.
func openDebug(root int, name string, id []byte, crc uint32) *os.File {
	if root < 0 {
		return nil
	}
	at, err := findIn(root, name, 0)
	if err != nil {
		return nil
	}
	defer at.close()
	file, err := at.open()
	if err != nil {
		return nil
	}
	f, err := openELF(file, at.stat.Size)
	if err == nil {
		switch {
		case len(id) > 0:
			if bytes.Equal(f.buildID(), id) {
				return file
			}
		case at.stat.Size <= maxPart:
			sum := crc32.NewIEEE()
			if _, err := io.Copy(sum, io.NewSectionReader(file, 0, at.stat.Size)); err == nil && sum.Sum32() == crc {
				return file
			}
		}
	}
	file.Close()
	return nil
}
