// Package dataplane is the contract between Fairlead and a data plane: what a
// provider is given, what it answers, and what each side may rely on. The
// same contract exists twice, as the Go interface Provider and, for providers
// in other processes and other languages, as the gRPC service of package
// dataplanepb, described in PROTOCOL.md. Package sdk joins the two: a provider
// in Go implements Provider and its main calls sdk.Serve.
//
// # What a provider sees
//
// A Snapshot is the whole of what should be programmed: services, each with
// frontends that capture connections and endpoints that take them. It is
// immutable; the next one shares all that did not change. A Delta names what
// did, so that work follows the change and not the size. A provider may use
// either: next is always sufficient.
//
//	Reconcile(ctx, next, delta) → Result
//
// One call is one generation. It is all or old for each service: a service
// that cannot be programmed keeps what it had, is named in the Result, and
// blocks no other. An error of the call means that nothing was applied.
//
// # What a provider may rely on
//
// The SDK, and any host, keep these for it: calls do not overlap, generations
// rise within a session, a delta is relative to the last generation that
// Reconcile accepted, services and endpoints in a snapshot passed Check, no two
// services share a frontend, no endpoint stands at one, and an incomplete
// snapshot lacks nothing that the one before had and the host did not remove by
// name.
//
// Plugins import this tree and nothing of core.
package dataplane
