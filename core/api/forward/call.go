package forward

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/api/etcd"
)

// kind says what a call needs, and whether it may be made twice.
type kind uint8

const (
	write kind = iota // what may have been done is not done again
	read              // needs a leader
	local             // any server answers it by itself
)

// face is a Forwarder as a listener shows it.
type face struct {
	*Forwarder
	unimplemented

	reach etcd.Reach
}

// outgoing returns the context of a call to a server.
func (f *face) outgoing(ctx context.Context, leader bool) (context.Context, error) {
	if _, err := f.reach.Keyspace(ctx); err != nil {
		return nil, err
	}
	keyspace := metadata.ValueFromIncomingContext(ctx, etcd.KeyspaceKey)
	if f.reach == etcd.UserOnly {
		keyspace = []string{"user"}
	}
	out := metadata.MD{}
	if len(keyspace) > 0 {
		out.Set(etcd.KeyspaceKey, keyspace[len(keyspace)-1])
	}
	if leader {
		out.Set(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
	}
	return metadata.NewOutgoingContext(ctx, out), nil
}

// call makes a unary call.
func call[Q, R any](ctx context.Context, f *face, k kind, method string, q *Q) (*R, error) {
	var cancel context.CancelFunc
	client := ctx
	if _, has := ctx.Deadline(); has {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, requestTimeout)
	}
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)()
	ctx, err := f.outgoing(ctx, k != local)
	if err != nil {
		return nil, err
	}
	r := new(R)
	err = f.attempts(ctx, k, 0, func(ctx context.Context, u *upstream) error { return u.conn.Invoke(ctx, method, q, r) })
	if err != nil {
		return nil, f.final(client, ctx, err)
	}
	return r, nil
}

// attempts makes a call until a server carried it out, or nobody knows whether one
// did. Patience is how long to wait for a leader; 0 is as long as the context.
func (f *Forwarder) attempts(ctx context.Context, k kind, patience time.Duration, do func(context.Context, *upstream) error) error {
	begun := time.Now()
	for tries := 1; ; tries++ {
		u, err := f.ring.take(ctx, k != local)
		if err != nil {
			if hasNoLeader(err) && (patience == 0 || time.Since(begun) < patience) && rest(ctx) {
				continue // somebody will be elected
			}
			return errorOf(err)
		}
		tagged, sent := withSent(ctx)
		err = do(tagged, u)
		if err == nil {
			f.ring.give(u)
			return nil
		}
		nothing := etcd.NotDone(err) || doesNotLead(err) || !sent.Load()
		f.ring.doubt(u, err)
		f.ring.give(u)
		again := nothing || k != write && gone(err)
		if !again || ctx.Err() != nil || tries > 2*len(f.cfg.Servers())+1 {
			return u.failed(err)
		}
	}
}

// rest waits a little; false if the call is over.
func rest(ctx context.Context) bool {
	t := time.NewTimer(restTime)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const etcdPrefix = "etcdserver: "

// gone reports whether a call failed with its server, and not in it.
func gone(err error) bool {
	s := status.Convert(err)
	switch s.Code() {
	case codes.Unavailable:
		return !strings.HasPrefix(s.Message(), etcdPrefix) || s.Message() == rpctypes.ErrorDesc(rpctypes.ErrGRPCStopped)
	case codes.Canceled:
		return true // by the end of the connection; the caller looks at the context
	}
	return false
}

// failed says an error of a call to a client: what a server said goes through as it
// is.
func (u *upstream) failed(err error) error {
	if !gone(err) || rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCStopped) || etcd.NotDone(err) {
		return err
	}
	why := describe(err)
	if u.left.Load() {
		why = "it is dead as gossip has it, or no server any more"
	}
	return unavailable(fmt.Sprintf("server %s of the store, at %s, went away: %s", u.Name, u.Address, why))
}

// final says the end of a call that failed: what the client itself ended, what its
// time ended, or what went wrong.
func (f *Forwarder) final(client, ctx context.Context, err error) error {
	switch {
	case client.Err() != nil:
		return status.FromContextError(client.Err()).Err()
	case f.ctx.Err() != nil:
		return rpctypes.ErrGRPCStopped
	case ctx.Err() != nil && !etcd.NotDone(err):
		return rpctypes.ErrGRPCTimeout
	}
	return err
}

func unavailable(why string) error { return status.Error(codes.Unavailable, why) }
