package api

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/fairleadv1"
	"github.com/fairlead/fairlead/core/model"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// Backend is what the agent answers with. Every field before Source is required.
type Backend struct {
	Identity  Identity
	Members   Members
	Events    Events
	Leaver    Leaver
	Settings  Settings
	Services  Services
	Registrar Registrar
	Traffic   Traffic
	Source    pb.SnapshotSourceServer  // for providers that run by themselves
	Plugins   fairleadv1.PluginsServer // may be nil, too
	Raft      Raft                     // nil: there is no store
	Servers   Servers                  // nil: they cannot be changed here
	Store     *etcd.Front              // nil: nobody answers etcd's services
}

// Identity tells which agent this is.
type Identity interface {
	// Status is called for each request and must not block.
	Status() Status
}

// Members gives the member table.
type Members interface {
	// Members returns one consistent state of the table and its version, which
	// rises with every change. The caller does not write to the slice.
	Members() (version uint64, members []Member)
}

// Events gives the transitions of the member table.
type Events interface {
	// Events yields the kept events with a sequence number above after, in
	// order; with follow it then waits for more, until ctx ends or the source
	// closes. Missed events show as one Event with Resync set. An error ends
	// the sequence.
	Events(ctx context.Context, after uint64, follow bool) iter.Seq2[Event, error]
}

// Leaver takes the node out of the cluster.
type Leaver interface {
	// Leave says left, waits until that has spread or ctx ends, and makes the
	// agent stop by itself afterwards. A second call waits for the same end.
	Leave(ctx context.Context) error

	// Restart announces that the node is back within hold, waits like Leave, and
	// makes the agent stop. An error that wraps ErrNoRestart means that it was
	// not announced and the agent goes on.
	Restart(ctx context.Context, hold time.Duration) error
}

// ErrNoRestart reports that a node cannot announce a restart.
var ErrNoRestart = errors.New("api: no restart")

// Settings gives the configuration in force.
type Settings interface {
	// Settings returns every key in the order of the reference table, with
	// secrets masked.
	Settings() []Setting
}

// Status is what an agent says of itself.
type Status struct {
	ID        model.NodeID
	Name      string
	Cluster   string
	Addr      netip.AddrPort // gossip, as advertised
	Version   string
	Started   time.Time
	NotReady  string // why the agent is not ready; empty if it is
	Listeners []Listener
}

// Listener is one place where the agent answers.
type Listener struct {
	Name    string // the configuration key: gossip.bind
	Address string // a path or host:port
}

// Member is one row of the member table.
type Member struct {
	ID    model.NodeID
	Name  string
	Addr  netip.AddrPort
	Value model.Value
	Since time.Time // of the state
	Self  bool
	Role  string

	HeldUntil time.Time // it announced a restart; zero: none in force
}

// Event is one transition of the member table, or, with Resync, the note that
// events were missed and the table that stands in for them.
type Event struct {
	Seq    uint64
	At     time.Time
	Kind   string
	Member Member
	Was    model.Value
	From   netip.AddrPort // who told; zero if this node saw it itself
	Detail string

	Resync  bool
	Members []Member // with Resync: the table at Seq
}

// Setting is one configuration key.
type Setting struct {
	Key, Value, Origin string
}
