// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Mounts is a process in a mount namespace of its own, with other files than
// the rest of the machine.
type Mounts struct {
	// Etc replaces the files of /etc by these, by name.
	Etc map[string]string
	// Root, if not nil, is the only files in the root directory, by path,
	// with the files that they are copies of.
	Root map[string]string
	// Program and its arguments; it talks to its parent as a child does. If it
	// is empty, Body and its argument are used.
	Program []string
	Body    string
	Arg     any

	At string // where Root is mounted: StartIn knows
}

const bodyMounts = "mounts"

func init() { Register(bodyMounts, mountsBody) }

// StartIn starts a process in a host, with mounts of its own, and returns after
// its first report.
func (w *World) StartIn(host, comm string, m Mounts) (*Proc, error) {
	if m.Root != nil {
		at, err := w.path("root")
		if err != nil {
			return nil, err
		}
		if err := os.Mkdir(at, 0o755); err != nil {
			return nil, err
		}
		m.At = at
	}
	p, err := w.Start(host, comm, bodyMounts, m)
	if err != nil {
		return nil, err
	}
	_, err = p.next()
	return p, err
}

// mountsBody makes the mounts on the main thread and then executes the program,
// because a Go program cannot move all its threads into a mount namespace.
func mountsBody(c *Child) error {
	var m Mounts
	if err := c.Arg(&m); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("new mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	program, env := m.Program, os.Environ()
	if len(program) == 0 {
		order, err := successor(c.Comm, m.Body, m.Arg)
		if err != nil {
			return err
		}
		program, env = []string{self}, order
	}
	root := m.At
	if root != "" {
		if err := unix.Mount("tmpfs", root, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount a root: %w", err)
		}
		for to, from := range m.Root {
			if err := copyFile(filepath.Join(root, to), from); err != nil {
				return err
			}
		}
	}
	if m.Etc != nil {
		etc := filepath.Join("/", root, "etc")
		if err := os.MkdirAll(etc, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", etc, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("mount /etc: %w", err)
		}
		for name, text := range m.Etc {
			file := filepath.Join(etc, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	if root != "" {
		if err := unix.Chroot(root); err != nil {
			return fmt.Errorf("change the root: %w", err)
		}
		if err := os.Chdir("/"); err != nil {
			return err
		}
	}
	if err := unix.Exec(program[0], program, env); err != nil {
		return fmt.Errorf("start %s: %w", program[0], err)
	}
	return nil
}

func copyFile(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
