// Package health checks the instances that run on this node.
//
//	Set(instances) ──► table: verdicts, schedule ──due──► lane ──slow──► workers
//	                     ▲        │                         │              │
//	                     └────────┼───────── outcomes ──────┴──────────────┘
//	                              ├──► OnChange, States
//	                              └──► a file, for the next process
//
// The table is a value: it takes the time and its randomness as arguments. The
// Runner drives it. Its mutex guards the table; one goroutine makes the probes
// that are due and calls OnChange, another one writes the file. What does not
// answer within a few milliseconds goes to a worker; their number is bounded.
//
// Each probe has a connection of its own, as a new client would: one that is
// kept says nothing of a server that no longer accepts, and costs a descriptor.
// No name is looked up, no proxy used.
//
// An instance passes while all of its checks pass, and at once if it has none.
// A check begins critical. The names of its knobs, and what they mean, are
// those of Consul: success_before_passing is the number of consecutive
// successes, and failures_before_critical that of consecutive failures, that it
// takes to change the verdict; 0 and 1 both mean the first. Other than there, a
// first probe does not count for more than a later one.
//
// The verdict outlives Set with the same check, also when only its interval,
// timeout or thresholds differ; anything else (kind, path, service, address)
// makes it a new check that begins critical. It outlives the process too: a
// check that passed at most KeepFor ago in the same boot of the machine still
// passes when the next process starts, until probes say otherwise.
package health
