// SPDX-License-Identifier: Apache-2.0

// Package agent is the part of 'seine agent' that holds the capabilities and the data. It turns
// rows into metrics, answers the API from the model, reads the config file, and runs the process
// that talks to the network on its behalf.
//
//	rows of tools ─┬► watch.Model ─┐
//	               ├► Meter ───────┼► Answers ◄── socketpair ──► front ◄── HTTP, OTLP
//	               └► recorder     ┘  (holder: capabilities, no network socket)
//
// The holder has capabilities and opens no network socket. The front (internal/front) has the
// sockets and no capability. They talk over a socketpair, see wire.go.
package agent
