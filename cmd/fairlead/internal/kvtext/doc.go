// Package kvtext turns words of people into requests of the etcd v3 API: flags and
// arguments of a command line, and transactions as etcdctl writes them. It asks
// nobody.
package kvtext
