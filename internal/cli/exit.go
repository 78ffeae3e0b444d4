// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"seine/internal/host"
	"seine/internal/probe"
	"seine/internal/tool"
)

// Exit codes of the command line.
const (
	exitOK = iota
	exitBroken
	exitUsage
	exitKernel
	exitPermission
)

// errPermission is the message to a user who lacks privileges.
type errPermission string

func (e errPermission) Error() string { return string(e) }

// checkPermission checks, before anything is loaded, that this process may use BPF.
func checkPermission() error {
	var missing []string
	for _, c := range host.NeedTrace.Missing() {
		missing = append(missing, c.String())
	}
	if len(missing) > 0 {
		return errPermission(fmt.Sprintf("loading BPF programs needs CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN (missing: %s): run as root or with these", strings.Join(missing, ", ")))
	}
	return nil
}

// code is the exit code for an error.
func code(err error) int {
	var perm errPermission
	var point *probe.PointError
	var asked exitCode
	switch {
	case err == nil, errors.Is(err, syscall.EPIPE):
		return exitOK
	case errors.Is(err, tool.ErrUsage):
		return exitUsage
	case errors.As(err, &asked):
		return int(asked)
	case errors.As(err, &perm):
		return exitPermission
	case errors.As(err, &point), errors.Is(err, probe.ErrNotSupported):
		return exitKernel
	case errors.Is(err, os.ErrPermission):
		return exitPermission
	}
	return exitBroken
}
