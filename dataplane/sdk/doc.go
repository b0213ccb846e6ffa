// Package sdk makes a process out of a dataplane.Provider. This is the manual
// for authors; package dataplane says what a provider is given and what it may
// rely on, PROTOCOL.md how the same looks in other languages.
//
// # A provider in ten lines
//
//	package main
//
//	import (
//		"os"
//
//		"github.com/fairlead/fairlead/dataplane/sdk"
//	)
//
//	func main() { os.Exit(sdk.Serve(New())) }
//
// Name the executable fairlead-dataplane-NAME, with the NAME that Info returns,
// and put it beside the fairlead binary. That is all: handshake, sessions,
// chunks, limits, signals and logs are seen to. See Example for a provider that
// is complete.
//
// # What you write
//
// Seven methods. Reconcile is the heart: make the system what next says. The
// short way is delta, which names the services that changed, with the endpoints
// that came, went or are different; the safe way is to compare next with what is
// there. Do the second whenever you are not certain of the first: in a fresh
// process, after an error of your own, after drift.
//
//   - Answer services that you cannot program with a status, each time, and
//     program the others. Leave those you refuse as they were.
//   - Return an error only if nothing was applied. Wrap one of the errors of
//     package dataplane: hosts act on it. Anything else counts as ErrFailed,
//     which is tried again.
//   - Do not remove what next lacks while next.Completeness is not Complete, if
//     you find it in the system and do not know it: a former process was told.
//     The SDK keeps what it knows itself in next, but its memory ends with the
//     process.
//   - Tag all that you make with Config.InstanceID. Cleanup has to find it by
//     that alone, in a process that knows nothing.
//   - Do nothing in Info, and nothing that stays in Probe.
//   - Mind ctx: the host stops waiting when it ends.
//   - Let Health try the data path itself. If yours leads connections of this
//     host, package selftest has the frontend, the endpoint and the dial for it.
//
// Calls never overlap, but Info, Health and the methods of the optional
// interfaces may come at any time. Health is given 2 s; Watch is called once for
// each host that watches, so repair drift in a goroutine of your own and only
// tell of it there.
//
// A tick without change does not reach you, except after Configure changed
// something: then Reconcile is called with what you know and an empty delta.
//
// # What survives
//
// If your work outlives the process, as kernel state does, implement
// dataplane.Stateful: after Configure you are asked what is applied, by session,
// generation and digest, which you stored beside it. While the host says the
// same, it sends nothing else; and anything new begins with a whole snapshot,
// whose delta says that all of it is new. Kernel state goes by Cleanup and
// Shutdown(remove), never because a process ends.
//
// # Logs and output
//
// Implement Logging and use its logger. It writes to standard error, where the
// agent reads it, and survives an agent that is gone or stuck; plain writes to
// os.Stderr survive the former only. Under an agent, standard output is standard
// error from the first line of Serve on. What prints before, in an init function
// or a package variable, spoils the handshake, and the agent shows that line.
//
// A panic in a method ends the process with code 2 after a line of JSON
// (handshake.Panic) that the agent logs. The same code comes of the Go runtime
// for a panic in a goroutine of yours.
//
// # Ways to run
//
// By an agent, as a child: nothing to do. When the agent is lost, the variable
// FAIRLEAD_ON_HOST_LOSS, which it set, decides whether the process ends within a
// second, or serves on until the next agent adopts it.
//
// By itself, say under systemd: --listen unix:PATH; an agent that is configured
// with this endpoint adopts it and never ends it. With --follow ADDRESS the
// provider fetches its snapshots from an agent, and nobody has to reach it.
//
// In a debugger: --debug prints how to attach an agent to it. In a test: Run
// with an Env of your own, or NewService on a server of your own.
//
// SIGTERM ends it and keeps what is programmed. Under an agent SIGINT and SIGHUP
// are left to the agent. The process gives up the means to gain privileges
// (no_new_privs); in a program with cgo it executes itself once for that.
package sdk
