// Package interop runs the programs that users have against Fairlead and against
// what those programs were made for, and compares.
//
//	go test -C test/interop ./...
//
// Fairlead is agents as users run them: one alone, three that are servers of one
// store, and one that passes calls on to those. FAIRLEAD_BIN names the program; it
// is built if that is not set. INTEROP_ETCD names another etcd than Debian's.
//
// etcdctl and etcd are Debian's etcd-client and etcd-server; what needs one that
// is not installed is skipped. It is a module of its own, so that etcd's client
// is no dependency of Fairlead.
package interop
