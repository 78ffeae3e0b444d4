// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"seine/internal/probe"
	"seine/internal/tool"
)

// btfFlag is --btf. Every command that looks at the running kernel has it.
type btfFlag struct{ path string }

func (b *btfFlag) declare(fs *pflag.FlagSet) {
	fs.StringVar(&b.path, "btf", "", "file with the BTF of this kernel, if the kernel has none: raw BTF, or a vmlinux with BTF")
}

// of declares the flag for a command that looks at the kernel as soon as it runs.
func (b *btfFlag) of(cmd *cobra.Command) {
	b.declare(cmd.Flags())
	cmd.PreRunE = func(*cobra.Command, []string) error { return b.use() }
}

// use takes the kernel's types from the file. It comes before anything that asks for them.
func (b *btfFlag) use() error {
	if b.path == "" {
		return nil
	}
	if err := probe.UseBTF(b.path); err != nil {
		return tool.Usagef("--btf %s: %v", b.path, err)
	}
	return nil
}
