// Command run is what `make test` and `make test-long` call: it vets and tests
// every package of the module, holds each package to a budget of seconds, and
// runs every fuzz target for a while.
//
//	go run ./test/run [-long] [-only REGEXP] [-skip-fuzz] [-C DIR]
//
// The steps, in this order:
//
//  1. go vet of everything.
//  2. go test -race of the pure packages and the drivers (core/, dataplane/).
//  3. go test of everything else that does not time real processes.
//  4. go test, one package at a time, of test/e2e and test/netns, whose figures
//     would suffer from a neighbour.
//  5. go vet and go test of the modules within this one (test/bench, contrib).
//  6. each fuzz target, 10 s or 60 s.
//
// A package that takes longer than test/budget.txt allows fails, though its
// tests passed: the whole run must stay below 15 minutes on two cores, and a
// suite grows slow one unnoticed second at a time.
//
// Each package prints one line when it ends; failures and the reasons of skips
// follow it. The last line is `N passed, N failed, N skipped`. The exit code is
// 0 only when at least one test ran and nothing failed.
package main
