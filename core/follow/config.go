package follow

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// Server is one server of the store.
type Server struct {
	Name    string // for people
	Node    string // as its certificate says; empty: it is no agent
	Address string
}

// Config is what a Follower is made of. Fields without "optional" are required.
type Config struct {
	// Servers returns the servers that are known now. It is called often, and must
	// not block.
	Servers func() []Server
	// Dial returns a connection to a server, which need not be made yet.
	Dial func(Server, ...grpc.DialOption) (*grpc.ClientConn, error)
	// Nobody is said while Servers returns none: why, and what to do.
	Nobody string
	// Prefix is what the keys have in an etcd cluster. Empty: the servers are agents,
	// which have the keys in a keyspace of their own.
	Prefix string

	// File is where the copy is kept; empty: in memory only. Of is what it is a copy
	// of, so that one of something else is not taken: the name of the cluster, and
	// where its state lives.
	File, Of string

	Now     func() time.Time // wall clock
	Log     *slog.Logger
	Metrics prometheus.Registerer

	times times // optional; tests shorten them
}

// times are what a Follower waits for.
type times struct {
	// answer bounds the first question to a server, and page each further one of
	// what it has.
	answer, page time.Duration
	// ask is how often it is asked how far the watch is. After silent times without
	// any answer it is left.
	ask    time.Duration
	silent int
	// steady is how long a server was followed if there was nothing wrong with it
	// before.
	steady time.Duration
	// rest is between rounds of all servers; it doubles up to restMost.
	rest, restMost time.Duration
	// patience is how long nobody is followed before that is complained of: an agent
	// that starts knows of no server at first, or is about to be one.
	patience time.Duration
	// write is the shortest time between two writes of the file.
	write time.Duration
}

func defaultTimes() times {
	return times{
		answer: 5 * time.Second, page: 30 * time.Second,
		ask: time.Second, silent: 10, steady: 3 * time.Second,
		rest: 100 * time.Millisecond, restMost: 3 * time.Second, // a leader is elected in less
		write:    time.Second,
		patience: 5 * time.Second,
	}
}

// pageKeys is how many keys are read at a time.
const pageKeys = 256

func (c *Config) check() error {
	switch {
	case c.Servers == nil || c.Dial == nil || c.Of == "" || c.Now == nil || c.Log == nil || c.Metrics == nil:
		return errors.New("follow: Servers, Dial, Of, Now, Log and Metrics are required")
	case c.Nobody == "":
		c.Nobody = "no server of the store is known"
	}
	if c.times == (times{}) {
		c.times = defaultTimes()
	}
	return nil
}

// The reasons to leave a server.
var (
	// ErrOtherCluster says that a server is of another cluster than the copy.
	ErrOtherCluster = errors.New("follow: the server is of another cluster")
	// ErrBehind says that a server has a lower revision than the copy.
	ErrBehind = errors.New("follow: the server is behind")
	// ErrSilent says that a server answers nothing any more.
	ErrSilent = errors.New("follow: the server is silent")
)

var errCompacted = errors.New("follow: the history is compacted")

// compare returns why what is at a revision of a cluster may not follow a state.
func (c *Config) compare(known State, cluster uint64, revision int64) error {
	switch {
	case known.Cluster() == 0:
	case cluster != known.Cluster():
		return fmt.Errorf("%w: it is of cluster %016x, and what is known here of cluster %016x: if the servers were begun anew or restored, %s",
			ErrOtherCluster, cluster, known.Cluster(), c.reset(cluster))
	case revision < known.Revision():
		return fmt.Errorf("%w: it is at revision %d, and what is known here at %d: if the servers lost what they had, %s",
			ErrBehind, revision, known.Revision(), c.reset(cluster))
	}
	return nil
}

// reset says how an operator makes an agent take what it refuses.
func (c *Config) reset(cluster uint64) string {
	return fmt.Sprintf("`fairlead raft follow %016x` on this node follows it", cluster)
}
