// Package conformance asks a data plane whether it keeps the contract. It is a
// black box: it speaks to a provider over its socket and knows nothing of how,
// or in which language, it is written.
//
// From a test:
//
//	func TestConformance(t *testing.T) {
//		conformance.Test(t, conformance.Target{Exec: "bin/fairlead-dataplane-mine"})
//	}
//
// From a shell, `fairlead plugin conform --exec PATH`, which prints what Run
// returns.
//
// # What is tested
//
// Checks lists all checks: each has an id such as "reconcile.base-mismatch",
// the sentence of the contract that it demands, and what to do if it fails. A
// check passes, fails with what was seen, or is skipped with the reason: a
// target that is only an endpoint cannot be killed, and a provider need not
// count or hold connections.
//
// # What can be seen
//
// A provider that acknowledges without doing anything looks right in every
// answer. So checks that care about the system itself read the gauges
// dataplane.GaugeServices and dataplane.GaugeEndpoints of the call Stats, or ask
// Options.Observe. A provider with neither is still tested, but such checks are
// skipped as "not observable".
//
// # What it does to the system
//
// It has the provider program up to Options.Services services with addresses of
// 198.18.0.0/15 and 2001:db8::/32, which are set aside for such use, and connects
// to none of them. It takes instance ids of its own, and ends with
// Cleanup(OWNED). A provider in use must not be its target: it would lose what
// it has programmed. Run a provider that alters the kernel in a network
// namespace.
package conformance
