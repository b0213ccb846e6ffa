// Package server is the server half of an agent: what a node needs to take part
// in the cluster's store. It decides which server of which group this node is,
// keeps that on disk, runs a raft.Host, and says who the others are.
//
//	<data_dir>/raft.json   which server of which group this is: Identity
//	<data_dir>/raft/       its log and snapshots
//
// # Which group
//
// A static set, the same list of names on all its servers, needs no word between
// them: the id of the group is a digest of the names, that of a server its rank
// among them. A server alone draws both. Either way they are written down before
// there is a log, and never drawn again.
//
// # Who is where
//
// Each server publishes its name and addresses in the system keyspace under
// ServersPrefix, once it differs from what is there. The addresses of a static set
// come from the configuration: they are needed before anything can be read.
package server
