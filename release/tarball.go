// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// tarball writes the parts below a folder of the tarball's name.
func tarball(name string, s *src, all []part) error {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	top := strings.TrimSuffix(filepath.Base(name), ".tar.gz") + "/"
	for _, p := range sorted(all, tgz) {
		err := w.WriteHeader(&tar.Header{
			Name: top + p.path(tgz), Size: int64(len(p.data)), Mode: int64(p.mode()), ModTime: s.time,
			Uname: "root", Gname: "root", Format: tar.FormatUSTAR,
		})
		if err != nil {
			return err
		}
		if _, err := w.Write(p.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(name, compress(b.Bytes()), 0o644)
}
