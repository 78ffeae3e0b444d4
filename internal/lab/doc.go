// SPDX-License-Identifier: Apache-2.0

// Package lab makes worlds and the traffic in them: private network
// namespaces joined by veth pairs, and workloads with exact counts that run as
// child processes of this same executable, each with its own PID and comm.
//
// It is part of the shipped binary (`seine demo`, `seine doctor --selftest`)
// and drives the live tests, natively and in guests where the test binary is
// the only program there is: everything is done by netlink and system calls.
//
// Nothing here sleeps to wait for something. Children report on a pipe when
// they have listened, connected or finished, and start when they are told to,
// so a tool can be attached between "ready" and "go":
//
//	w, err := lab.NewWorld(lab.Options{Hosts: lab.TwoHosts})
//	defer w.Close()
//	t, err := lab.StartTCP(w, lab.Sessions{Count: 23, Send: 1000, Recv: 5000})
//	// t.Client.PID, t.Server.PID and t.Port are known; no session was made yet
//	res, err := t.Run()
//	// 23 sessions were made; res says which ports and how long each one took
//
// The workloads, each with a Start function that returns when everything is
// ready, and Run: [StartTCP] (sessions, also held, parallel, over UNIX sockets,
// MPTCP or io_uring), [StartConnects] with [StartTargets] and [Outcomes],
// [StartIO] (each call that sends with each that receives), [StartPingPong]
// (for measurements) and [StartFlood]. [World.Counters] has the kernel's own
// counts. Other workloads are bodies for [Register] and [World.Start]; parent
// and child talk by [Child.Report], [Proc.Expect] and [Proc.Tell].
//
// A program that uses the package calls [Main] first thing in main (and in
// TestMain): in a child it runs the child's body and does not return.
package lab
