// SPDX-License-Identifier: Apache-2.0

// Package host knows the machine that seine runs on: where its cgroup2 and
// tracefs are, what this process may do there, and what the filters' words
// (a user, a namespace, a cgroup) are to the kernel.
//
// Facts that cannot change while the process runs are read once. The package
// starts no goroutines; every function may be called from several at a time.
package host
