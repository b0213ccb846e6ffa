package forward

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/identity"
)

// ring has the one server that calls go to, and finds the next one.
type ring struct {
	cfg *Config
	ctx context.Context

	mu       sync.Mutex
	current  *upstream     // nil: none
	looking  chan struct{} // closed when a search ends; nil: there is none
	failed   error         // why the last search found no server with a leader; nil: it did
	failedAt time.Time
	asked    []Server // by the last search
	said     bool     // it was logged
	closed   bool
	all      map[*upstream]bool // that are not closed
	running  sync.WaitGroup
}

// upstream is a connection to a server.
type upstream struct {
	Server
	conn *grpc.ClientConn
	left atomic.Bool // it is no server any more, and its calls were ended for that

	// Of the ring's mutex.
	uses       int
	retired    bool // no new calls, and closed when the last one is over
	leaderless bool // it said that it has no leader
	useless    bool // it said that it does not serve
}

// take returns the server for a call, to be given back. With leader it is one that
// knew a leader when it was asked last; the error is etcd's ErrGRPCNoLeader if none
// does.
func (r *ring) take(ctx context.Context, leader bool) (*upstream, error) {
	for {
		servers := r.cfg.Servers()
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, rpctypes.ErrGRPCStopped
		}
		if u := r.current; u.serves(servers) && !(leader && u.leaderless) {
			u.uses++
			r.mu.Unlock()
			return u, nil
		}
		if r.looking == nil {
			if err := r.failed; err != nil && time.Since(r.failedAt) < restTime && slices.Equal(r.asked, servers) {
				r.mu.Unlock()
				return nil, err
			}
			r.search(servers)
		}
		looking := r.looking
		r.mu.Unlock()
		select {
		case <-looking:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// serves reports whether calls can go there.
func (u *upstream) serves(servers []Server) bool {
	return u != nil && !u.useless && u.conn.GetState() == connectivity.Ready && slices.Contains(servers, u.Server)
}

// keep says that a call goes on after it is given back.
func (r *ring) keep(u *upstream) *upstream {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.uses++
	return u
}

// give says that a call is over.
func (r *ring) give(u *upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.uses--
	r.settle(u)
}

// doubt takes what a server answered instead of doing something.
func (r *ring) doubt(u *upstream, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if hasNoLeader(err) {
		u.leaderless = true
	} else if etcd.NotDone(err) || doesNotLead(err) {
		u.useless = true
	}
}

// doesNotLead reports whether an answer means that only the leader does such a thing.
func doesNotLead(err error) bool {
	return rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotLeader)
}

func hasNoLeader(err error) bool {
	return rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader)
}

// settle closes a connection that nobody uses and nobody will.
func (r *ring) settle(u *upstream) {
	if u.retired && u.uses == 0 && r.all[u] {
		delete(r.all, u)
		_ = u.conn.Close() // it is closed in any case
	}
}

func (r *ring) retire(u *upstream) {
	if u != nil {
		u.retired = true
		r.settle(u)
	}
}

// close ends all connections.
func (r *ring) close() {
	r.mu.Lock()
	r.closed = true
	for u := range r.all {
		u.retired, u.uses = true, 0
		r.settle(u)
	}
	r.mu.Unlock()
	r.running.Wait()
}

// look ends calls and streams at those that are no servers any more, as far as is known,
// while others are. One that stands still or whose host is gone does not end them, nor
// does TCP for long, and gossip has it dead before that.
func (r *ring) look() {
	tick := time.NewTicker(lookTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.leave()
		case <-r.ctx.Done():
			return
		}
	}
}

func (r *ring) leave() {
	if !r.used() {
		return
	}
	servers := r.cfg.Servers()
	if len(servers) == 0 {
		return // it may be that this node hears nobody
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := range r.all {
		if u.uses > 0 && !slices.Contains(servers, u.Server) {
			u.left.Store(true)
			_ = u.conn.Close() // it is closed in any case
		}
	}
}

// used reports whether calls or streams are under way.
func (r *ring) used() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for u := range r.all {
		if u.uses > 0 {
			return true
		}
	}
	return false
}

// search looks for a server, in the background: whoever waits for it may give up.
func (r *ring) search(servers []Server) {
	done := make(chan struct{})
	r.looking, r.asked = done, servers
	old := r.current
	if old != nil {
		old.uses++ // it stays open meanwhile
	}
	r.running.Go(func() {
		defer close(done)
		found, err := r.find(servers, old)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.looking, r.failed = nil, err
		if err != nil {
			r.failedAt = time.Now()
		}
		if r.current != found {
			r.retire(r.current)
			r.current = found
		}
		if old != nil {
			old.uses--
			r.settle(old)
		}
		if r.closed {
			r.retire(found)
			return
		}
		r.tell(found, err)
	})
}

// tell logs what a search found, if that is news.
func (r *ring) tell(u *upstream, err error) {
	switch {
	case err == nil:
		r.said = false
		r.cfg.Log.Info("calls to the store go to a server", "server", u.Name, "address", u.Address)
	case !r.said:
		r.said = true
		r.cfg.Log.Warn("no server of the store can be reached that has a leader", "error", err)
	}
}

// find returns a server that has a leader; or one that has none, with an error; or
// nil.
func (r *ring) find(servers []Server, old *upstream) (*upstream, error) {
	if len(servers) == 0 {
		return nil, errNoServers
	}
	servers = slices.Clone(servers)
	rand.Shuffle(len(servers), func(i, j int) { servers[i], servers[j] = servers[j], servers[i] })
	leader := r.cfg.Leader()
	place := func(s Server) int {
		switch {
		case old != nil && s == old.Server:
			return 2 // there is a reason to look
		case s.Address == leader:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(servers, func(a, b Server) int { return place(a) - place(b) })
	var leaderless *upstream
	var failures []error
	for _, s := range servers {
		u, err := r.reach(s, old)
		if err == nil {
			err = r.probe(u)
		}
		switch {
		case err == nil:
			r.drop(leaderless, old)
			r.trust(u)
			return u, nil
		case u != nil && leaderless == nil && hasNoLeader(err):
			leaderless = u
		default:
			r.drop(u, old)
			failures = append(failures, fmt.Errorf("server %s at %s: %s", s.Name, s.Address, describe(err)))
		}
	}
	if leaderless != nil {
		r.doubt(leaderless, rpctypes.ErrGRPCNoLeader)
		return leaderless, rpctypes.ErrGRPCNoLeader
	}
	return nil, errors.Join(failures...)
}

// reach returns a connection to a server, the old one if it still is one.
func (r *ring) reach(s Server, old *upstream) (*upstream, error) {
	if old != nil && old.Server == s && old.conn.GetState() == connectivity.Ready {
		return old, nil
	}
	conn, err := r.cfg.Dial(s, grpc.WithStatsHandler(watchSent{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, err
	}
	u := &upstream{Server: s, conn: conn}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = conn.Close()
		return nil, rpctypes.ErrGRPCStopped
	}
	if r.all == nil {
		r.all = map[*upstream]bool{}
	}
	r.all[u] = true
	return u, nil
}

// probe asks a server whether it has a leader.
func (r *ring) probe(u *upstream) error {
	ctx, cancel := context.WithTimeout(r.ctx, dialTimeout)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	// It waits while the connection is made, and fails when that does.
	_, err := pb.NewClusterClient(u.conn).MemberList(ctx, &pb.MemberListRequest{})
	if err == nil {
		// gRPC lets calls through before it says that the connection is ready, and
		// whoever serves has to be.
		u.conn.WaitForStateChange(ctx, connectivity.Connecting)
	}
	return err
}

// drop closes a connection that was made in vain.
func (r *ring) drop(u, old *upstream) {
	if u == nil || u == old {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retire(u)
}

func (r *ring) trust(u *upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u.leaderless, u.useless = false, false
}

// describe says an error of a call for people.
func describe(err error) string {
	if explained := identity.Explain(err); explained.Error() != err.Error() {
		return explained.Error()
	}
	if s, is := status.FromError(err); is {
		return s.Message()
	}
	return err.Error()
}

// errorOf says to a client why there is no server for its call.
func errorOf(err error) error {
	if etcd.NotDone(err) || errors.Is(err, rpctypes.ErrGRPCStopped) {
		return err
	}
	return etcd.Nobody(err.Error())
}
