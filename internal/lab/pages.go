// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"io"
	"os"
)

// CopyInPages copies a program page by page, so that the page cache holds it in single pages. Linux 6.18 maps the whole of
// a larger piece when one page of it is touched. How much of a program is resident then depends on how the file came into
// the cache: between 23 and 42 MB for the same start of tcplife.
func CopyInPages(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	defer out.Close()
	// Neither end has ReadFrom or WriteTo: those copy in the kernel, in larger pieces.
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, make([]byte, os.Getpagesize())); err != nil {
		return err
	}
	return out.Close()
}
