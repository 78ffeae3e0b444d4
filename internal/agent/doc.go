// SPDX-License-Identifier: Apache-2.0

// Package agent is the part of 'seine agent' that holds things: what rows become as metrics,
// what the API says about the model, the config file, and the process that talks to the
// network on its behalf.
//
//	rows of tools ─┬► watch.Model ─┐
//	               ├► Meter ───────┼► Answers ◄── socketpair ──► front ◄── HTTP, OTLP
//	               └► recorder     ┘  (holder: capabilities, no network socket)
//
// The holder has capabilities and opens no network socket. The front (internal/front) has the
// sockets and no capability. They talk over a socketpair, see wire.go.
package agent
