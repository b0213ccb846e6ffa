// Package interop runs the programs that users have against Fairlead and against
// what those programs were made for, and compares.
//
//	go test -C test/interop ./...
//
// etcdctl and etcd are Debian's etcd-client and etcd-server; what needs one that
// is not installed is skipped. It is a module of its own, so that etcd's client
// is no dependency of Fairlead.
package interop
