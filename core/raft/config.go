package raft

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/store"
)

// Config is what a Host is made of. Fields without "optional" are required.
type Config struct {
	// ID is this server, for all time: another state directory needs another ID.
	ID uint64
	// Cluster identifies the group, in hexadecimal.
	Cluster string
	// Voters are the servers of a new group, the same on each of them. Once there
	// is state on disk, that says who takes part.
	Voters []uint64
	// Join makes a server without state one that waits to be added to a group: it has
	// nothing, and stands for no election, until a leader that added it (Host.Change)
	// sends a snapshot. Its ID is a new one, made with the state directory: an ID that
	// was removed is refused for ever. Without Voters only. In a static set of servers,
	// of which the IDs are ranks, a directory that was emptied is not noticed here;
	// such a server ends when the leader speaks of entries that it confirmed and lost.
	Join bool

	// Disk is where log and snapshots are.
	Disk      disk.FS
	Transport Transport

	// HeartbeatInterval is the leader's, and the length of a tick. Default 100 ms.
	HeartbeatInterval time.Duration
	// ElectionTimeout is how long a leader may be silent, at least; up to twice as
	// long is drawn. At least three heartbeats. Default 1 s.
	ElectionTimeout time.Duration

	Sizes Sizes

	// OnApply is told of each batch that was applied, in order, from the applier:
	// it must not block. Optional.
	OnApply func(Applied)

	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Sizes bound what is kept; zero fields have their defaults.
type Sizes struct {
	SegmentBytes int64 // of the log; default 64 MiB
	// SnapshotBytes of log since the last snapshot make a new one, or as many as
	// that one had, whatever is more. Default 64 MiB.
	SnapshotBytes uint64
	// TrailingBytes of log that was applied are kept in memory, up to twice as many, for
	// followers that are not far behind; the leader keeps all that one of them lacks, up
	// to the next snapshot. Default 8 MiB.
	TrailingBytes uint64
	// FreeBytes is the space below which this server says that its disk is full.
	// Default 192 MiB: three segments.
	FreeBytes uint64
}

// Transport carries messages. None of its methods blocks, but for Ask.
type Transport interface {
	// Start is called once, before all others.
	Start(Handler)
	// Send carries a message to the server that it names, or loses it and tells
	// the Handler. Messages to one server arrive in order.
	Send(*pb.Message)
	// SendSnapshot carries a message with the snapshot that it is of, read from
	// file, which it closes. It tells the Handler how that ended.
	SendSnapshot(m *pb.Message, meta snap.Meta, file io.ReadCloser)
	// Ask has another server answer a question. It blocks until the context ends.
	// The error wraps ErrNotLeader if the other one does not lead; any other says
	// nothing of what happened.
	Ask(ctx context.Context, to uint64, q Question) (Answer, error)
	// Stop ends it; nothing is told to the Handler after it returned.
	Stop()
}

// Handler takes what a Transport received.
type Handler interface {
	// Receive takes a message of another server; one of no use is an error.
	Receive(*pb.Message) error
	// ReceiveSnapshot takes a snapshot as its sender has it on disk.
	ReceiveSnapshot(m *pb.Message, meta snap.Meta, r io.Reader) error
	// Unreachable says that messages to a server are lost.
	Unreachable(id uint64)
	// SnapshotSent says how SendSnapshot ended.
	SnapshotSent(id uint64, err error)
	// Gone says that the process of a server is gone, on hard evidence: a connection
	// to it ended, and another one was refused by its host. Silence is none.
	Gone(id uint64)
	// Answer answers what another server asked.
	Answer(ctx context.Context, from uint64, q Question) (Answer, error)
}

// Question is what servers ask the one that leads; one field is set.
type Question struct {
	// Commands are carried out; each has a Client.
	Commands []store.Command
	// Renew gives a lease its whole time again, and Left asks what it has left.
	Renew, Left *store.Lease
	// Room reports whether the asking server has room on its disk.
	Room *bool
}

// Answer is the answer.
type Answer struct {
	Results []store.Result // of the commands
	// TTL is what the lease has now; negative if it is not there.
	TTL time.Duration
}

// Applied is a batch that was applied.
type Applied struct {
	View *store.View
	// Results of the commands of the batch, in order, of every server's.
	Results []store.Result
	Spaces  []store.Keyspace // of the command that the result is of
}

// The errors of calls. Those of package store are about the command itself.
var (
	// ErrNotLeader says that another server leads, or none. Nothing happened.
	ErrNotLeader = errors.New("raft: this server does not lead")
	// ErrStopped says that this server ended or failed; see Host.Err.
	ErrStopped = errors.New("raft: this server is stopped")
	// ErrUnknown says that nobody knows whether a command was carried out.
	ErrUnknown = errors.New("raft: nobody knows whether this was done")
	// ErrNoState says that there is no state on disk, no Voters to begin with, and no
	// word to Join.
	ErrNoState = errors.New("raft: there is no state on disk and no voters are named to begin a group with")
	// ErrHasState says that a new group cannot begin where one has its state.
	ErrHasState = errors.New("raft: there is state on disk already")
)

func (c *Config) complete() error {
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 100*time.Millisecond)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, time.Second)
	c.Sizes.complete()
	switch {
	case c.ID == 0:
		return errors.New("raft: the id of a server is not 0")
	case c.ElectionTimeout < 3*c.HeartbeatInterval:
		return fmt.Errorf("raft: the election timeout is %v; it has to be three heartbeats of %v at least", c.ElectionTimeout, c.HeartbeatInterval)
	case c.Join && len(c.Voters) > 0:
		return errors.New("raft: a server joins a group, or begins one with Voters, not both")
	case c.Disk == nil || c.Transport == nil || c.Log == nil || c.Metrics == nil:
		return errors.New("raft: Disk, Transport, Log and Metrics are required")
	}
	return nil
}

func (s *Sizes) complete() {
	s.SegmentBytes = cmp.Or(s.SegmentBytes, 64<<20)
	s.SnapshotBytes = cmp.Or(s.SnapshotBytes, 64<<20)
	s.TrailingBytes = cmp.Or(s.TrailingBytes, 8<<20)
	s.FreeBytes = cmp.Or(s.FreeBytes, 3*uint64(s.SegmentBytes))
}
