// SPDX-License-Identifier: Apache-2.0

// Package cpio writes "newc" archives, the only kind that a kernel unpacks as
// its initramfs. The layout is in the kernel's tree under
// Documentation/driver-api/early-userspace/buffer-format.rst.
package cpio

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"strings"
)

// The file types of st_mode that an initramfs of ours holds.
const (
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
)

// trailer is the name of the empty entry that ends an archive.
const trailer = "TRAILER!!!"

// A Writer writes one archive. Names are absolute guest paths; missing parent
// directories are added, since the kernel does not make them. Every entry
// belongs to root.
type Writer struct {
	w    io.Writer
	off  int64
	ino  uint32
	seen map[string]bool
}

// NewWriter starts an archive on w. Nothing is buffered.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, seen: map[string]bool{"": true}}
}

// Dir adds a directory and its parents; one that is there already is left alone.
func (w *Writer) Dir(name string) error {
	name = clean(name)
	if w.seen[name] {
		return nil
	}
	if err := w.parent(name); err != nil {
		return err
	}
	return w.entry(name, typeDir|0o755, 0, nil)
}

// Has reports whether the archive has an entry of that name.
func (w *Writer) Has(name string) bool { return w.seen[clean(name)] }

// File adds a regular file of exactly size bytes read from r.
func (w *Writer) File(name string, perm fs.FileMode, size int64, r io.Reader) error {
	name = clean(name)
	if err := w.parent(name); err != nil {
		return err
	}
	return w.entry(name, typeFile|uint32(perm.Perm()), size, r)
}

// Symlink adds a symbolic link that points to target.
func (w *Writer) Symlink(name, target string) error {
	name = clean(name)
	if err := w.parent(name); err != nil {
		return err
	}
	return w.entry(name, typeLink|0o777, int64(len(target)), strings.NewReader(target))
}

// Close ends the archive. It does not close the underlying writer.
func (w *Writer) Close() error {
	w.ino = 0
	return w.write(trailer, 0, 0, nil)
}

func clean(name string) string {
	return strings.TrimPrefix(path.Clean("/"+name), "/")
}

func (w *Writer) parent(name string) error {
	dir := path.Dir("/" + name)
	if dir == "/" {
		return nil
	}
	return w.Dir(dir)
}

func (w *Writer) entry(name string, mode uint32, size int64, r io.Reader) error {
	// The kernel would silently use the later of two files.
	if w.seen[name] {
		return fmt.Errorf("cpio: /%s: added twice", name)
	}
	w.seen[name] = true
	w.ino++
	return w.write(name, mode, size, r)
}

func (w *Writer) write(name string, mode uint32, size int64, r io.Reader) error {
	if size > math.MaxUint32 {
		return fmt.Errorf("cpio: /%s: %d bytes are more than the format can say", name, size)
	}
	// magic, ino, mode, uid, gid, nlink, mtime, filesize, devmajor, devminor,
	// rdevmajor, rdevminor, namesize with its NUL, check
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		w.ino, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	if err := w.copy(int64(len(head)), strings.NewReader(head)); err != nil {
		return fmt.Errorf("cpio: /%s: %w", name, err)
	}
	if size == 0 {
		return nil
	}
	if err := w.copy(size, r); err != nil {
		return fmt.Errorf("cpio: /%s: %w", name, err)
	}
	return nil
}

// copy writes n bytes of r and fills up to the next multiple of four.
func (w *Writer) copy(n int64, r io.Reader) error {
	done, err := io.CopyN(w.w, r, n)
	w.off += done
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%d bytes of %d: %w", done, n, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return err
	}
	pad, err := w.w.Write(make([]byte, -w.off&3))
	w.off += int64(pad)
	return err
}
