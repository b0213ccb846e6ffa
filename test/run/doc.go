// Command run is what `make test` and `make test-long` call: it vets and tests
// every package of the module, holds each package to a budget of seconds, and
// runs every fuzz target for a while.
//
//	go run ./test/run [-long] [-only REGEXP] [-skip-fuzz] [-C DIR]
//
// Two rows of steps run beside each other, as one computes and the other waits:
//
//   - go vet; go test -race of the pure packages and the drivers (core/,
//     dataplane/); go test of commands and checks.
//   - go test of packages that start processes and wait for them: the plugin
//     host, data planes, conformance suites; then of the modules within this one
//     (test/bench, contrib). What they make is their own: namespaces, cgroups,
//     free ports of loopback.
//
// After both come the packages whose figures would suffer from a neighbour:
// test/e2e, test/netns and the command line, one at a time. They wait for most of
// the time, so each fuzz target runs meanwhile, for 10 s or 60 s, at a lower
// priority, and one CPU is left free.
//
// A package that takes longer than test/budget.txt allows fails, though its
// tests passed: the whole run must stay below 15 minutes on two cores, and a
// suite grows slow one unnoticed second at a time. The table is for a machine
// that has nothing else to do. On one that is busy, with other steps of this run
// or with something else, the seconds by the clock count as much as the machine
// gave of what all asked of its CPUs ([Meter]), and what the package and its
// children computed, divided by the number of CPUs, always counts ([Charge]).
//
// Each package prints one line when it ends, with its seconds by the clock and
// of CPU; failures and the reasons of skips follow it. Lines of both rows mix.
// Before the end, each failure is named once more with the last lines it said.
// The last line is `N passed, N failed, N skipped`. The exit code is 0 only when
// at least one test ran and nothing failed.
package main
