package store

// Command is one entry of the log, or a part of it. Exactly one of Register, Op,
// Compact, Grant, Revoke, Disarm and Quota is set.
type Command struct {
	Space Keyspace
	// Client makes the command count once; nil: it counts each time.
	Client *Client
	// Term, unless 0, is that in which the proposer led: the command is refused
	// if it is committed in another.
	Term uint64

	Register *Register
	Op       *Op
	Compact  *Compact
	Grant    *Grant
	Revoke   *Revoke
	Disarm   *Disarm
	Quota    *Quota
}

// Check says why no server would carry the command out, whatever is in the space;
// nil: one might. What is refused here must not get into the log: some of it could
// not be read from there.
func (c *Command) Check() error {
	set := 0
	for _, there := range []bool{c.Register != nil, c.Op != nil, c.Compact != nil, c.Grant != nil, c.Revoke != nil, c.Disarm != nil, c.Quota != nil} {
		if there {
			set++
		}
	}
	if set != 1 {
		return ErrInvalid
	}
	if c.Op == nil {
		return nil
	}
	ops := 0
	return shape(*c.Op, MaxTxnOps, &ops)
}

// Size is about how many bytes the command takes in the log.
func (c *Command) Size() int {
	if c.Op == nil {
		return 64
	}
	return 64 + c.Op.size()
}

// Cost is how many bytes the command may add to its keyspace, at most.
func (c *Command) Cost() int64 {
	switch {
	case c.Op != nil:
		return c.Op.cost()
	case c.Grant != nil:
		return versionBytes
	}
	return 0
}

// Client is who proposes, and which of its commands this is.
//
// A client begins with Register. It numbers its commands from 1 on and may have
// MaxOutstanding of them on the way, also out of order, and each several times.
// It says up to which sequence it has all results, so that those are forgotten.
type Client struct {
	ID       ClientID
	Sequence uint64 // ≥ 1; of Register it does not matter
	Done     uint64 // results up to this one have arrived; < Sequence
}

// ClientID is random, and a new one with each start of a client.
type ClientID [16]byte

// Register makes a client known; doing it again changes nothing. Of those that
// are known the one not heard of for longest is forgotten when there are more
// than MaxClients, or when all results take more than maxResultBytes: its next
// command is refused, since nobody knows whether it was applied before.
type Register struct{}

// Compact drops the history before a revision.
type Compact struct{ Revision int64 }

// Grant makes a lease.
type Grant struct {
	ID         LeaseID
	TTLSeconds int64 // 1 to MaxTTLSeconds
}

// Revoke ends a lease and deletes its keys. Command.Term is the fence of a
// leader that lets it expire.
type Revoke struct{ ID LeaseID }

// Disarm ends the alarm of a full keyspace.
type Disarm struct{}

// Quota sets how many bytes the keyspace may take.
type Quota struct{ Bytes int64 }

// Limits of commands. etcd has the first two as well.
const (
	MaxTTLSeconds = 9_000_000_000
	MaxTxnOps     = 128 // compares, and operations of each branch; an inner transaction has what the outer ones leave
	// maxReadBytes bounds what all ranges of a transaction return: each server
	// carries them out, and holds that in memory.
	maxReadBytes = 256 << 20
	// MaxClients bounds the clients that are known at a time.
	MaxClients = 4_096
	// MaxOutstanding bounds the results that are kept for a client.
	MaxOutstanding = 1_024
	// maxResultBytes bounds all results that are kept, and maxKeptBytes one of
	// them: of a larger one only the fact is kept.
	maxResultBytes = 64 << 20
	maxKeptBytes   = 16 << 10
	maxInnerOps    = 4_096 // of a transaction with all those in it
)

// Result is what became of a command.
type Result struct {
	// Err is one of this package's errors, itself; what follows then says
	// nothing but Revision.
	Err      error
	Op       OpResult
	Revision int64 // of the keyspace, after the command
	// Repeated says that the command was applied before and this is its result
	// from then.
	Repeated bool
}
