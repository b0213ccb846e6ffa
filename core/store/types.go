package store

import "fmt"

// Keyspace names one of the two sets of keys.
type Keyspace uint8

// The keyspaces. The numbers are in the log.
const (
	User   Keyspace = 1 // what the client API serves
	System Keyspace = 2 // the catalog and the cluster's own state
)

// LeaseID identifies a lease within its keyspace; not 0.
type LeaseID int64

// KeyValue is one version of a key. What it refers to is not to be altered.
type KeyValue struct {
	Key   string
	Value []byte
	// Create is the revision in which the key came into being, Mod the one of
	// this version, and Version counts from 1 since Create. A deletion has
	// Create and Version 0.
	Create, Mod, Version int64
	Lease                LeaseID // 0: none
}

// Deleted reports whether this version is the end of the key.
func (kv KeyValue) Deleted() bool { return kv.Version == 0 }

// Event is one write, in the order of revisions and of the writes within.
type Event struct {
	KV KeyValue
	// Prev is what KV replaced; nil if there was nothing, or if it is compacted.
	Prev *KeyValue
}

// LeaseInfo describes a lease.
type LeaseInfo struct {
	ID         LeaseID
	TTLSeconds int64    // as granted
	Keys       []string // in order
}

// String prints user or system.
func (s Keyspace) String() string {
	switch s {
	case User:
		return "user"
	case System:
		return "system"
	}
	return fmt.Sprintf("keyspace %d", uint8(s))
}

// Range is a set of keys: from Key on, up to and without End.
type Range struct {
	Key string
	// End is exclusive. Empty: Key alone. FromKey: no end.
	End string
}

// FromKey as the end of a Range stands for all keys from the first on.
const FromKey = "\x00"

// WithPrefix is the range of all keys that begin with a prefix, which does not end in
// 0xff.
func WithPrefix(prefix string) Range {
	last := len(prefix) - 1
	return Range{Key: prefix, End: prefix[:last] + string([]byte{prefix[last] + 1})}
}

// Contains reports whether a key is in the range.
func (r Range) Contains(key string) bool {
	switch r.End {
	case "":
		return key == r.Key
	case FromKey:
		return key >= r.Key
	}
	return r.Key <= key && key < r.End
}
