// Package e2e tests whole agents: real processes in network namespaces of
// their own, with kill -9, SIGSTOP, cut cables and copied data directories,
// observed through their API as a user would.
//
// FAIRLEAD_BIN names the binary to test; without it the tests build one.
package e2e
