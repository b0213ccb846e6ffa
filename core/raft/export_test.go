package raft

// Network carries messages between the servers of one process.
type Network struct{ inner *network }

// NewNetwork returns the network of this package's tests, for its examples.
func NewNetwork() Network { return Network{newNetwork()} }

// Join returns the end of one server.
func (n Network) Join(id uint64) Transport { return n.inner.wire(id) }
