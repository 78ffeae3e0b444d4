// SPDX-License-Identifier: Apache-2.0

// Package host has facts about the machine that seine runs on: where cgroup2
// and tracefs are, what this process may do, and the kernel's ids of users,
// namespaces and cgroups that filters name.
//
// Facts that cannot change while the process runs are read once. The package
// starts no goroutines; every function may be called from several at a time.
package host
