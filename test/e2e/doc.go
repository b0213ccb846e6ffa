// Package e2e tests whole agents: real processes in network namespaces of
// their own, with kill -9, SIGSTOP, cut cables and copied data directories,
// observed through their API as a user would.
//
// FAIRLEAD_BIN names the binary to test; without it the tests build one.
//
// The scenarios of the replicated store (store_*_test.go) have clients and watches
// whose histories package history judges. They speak etcd's API only, and E2E_STORE=etcd
// runs them on three servers of Debian's etcd: what fails there too is a fault of the
// test. TestStoreChecksEtcd does a little of that always, and TestStoreLiar sees to it
// that lies are found.
package e2e
