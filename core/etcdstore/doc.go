// Package etcdstore puts an existing etcd cluster in the place of the agents' own
// store: `store: {kind: etcd}`.
//
//	               ┌── follow.Follower ◄── one endpoint   Source
//	Store (prefix) ┤
//	               └── forward.Forwarder ──► one endpoint   Writer
//
// The system keyspace is what etcd has under Prefix: an etcd cluster can hold those
// of several clusters beside what others keep there, and no request reaches a key
// that is not under it. There is no user keyspace: its API is etcd's own.
//
// It is used as agents use their servers: by one endpoint at a time, which is left
// when it has no leader; a write that may have been carried out is not made again.
// TLS files are read for each connection, so that they may be replaced at any time.
//
// etcd 3.4 and later has all that is needed. A client certificate has to be allowed
// to read, watch and write the prefix.
package etcdstore
