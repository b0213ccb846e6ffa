package transport

import (
	"context"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// The metadata of each call; transport.proto explains them.
const (
	clusterKey = "fairlead-cluster"
	fromKey    = "fairlead-from"
	toKey      = "fairlead-to"
)

// greet adds to a context what a call says of itself.
func (t *Transport) greet(ctx context.Context, to uint64) context.Context {
	return metadata.AppendToOutgoingContext(ctx, clusterKey, t.cfg.Cluster, fromKey, strconv.FormatUint(t.cfg.ID, 10), toKey, strconv.FormatUint(to, 10))
}

// admit returns the server that a call is from, or says why it is refused. The
// text is read on both sides.
func (t *Transport) admit(ctx context.Context) (from uint64, err error) {
	node, ok := PeerNode(ctx)
	if !ok {
		return 0, status.Error(codes.Unauthenticated, "transport: this call did not come by a port that knows who calls")
	}
	md, _ := metadata.FromIncomingContext(ctx)
	from, to := number(md, fromKey), number(md, toKey)
	err = t.check(node.Name, first(md, clusterKey), from, to)
	if err != nil {
		t.metrics.refused.Inc()
		if t.complaints.isNew("from "+node.Name, err.Error()) {
			t.cfg.Log.Warn("another server was refused", "node", node.Name, "id", from, "error", status.Convert(err).Message())
		}
		return 0, err
	}
	return from, nil
}

func (t *Transport) check(node, cluster string, from, to uint64) error {
	refuse := func(code codes.Code, format string, args ...any) error {
		return status.Errorf(code, "transport: server %d on this node refuses server %d of node %s: "+format, append([]any{t.cfg.ID, from, node}, args...)...)
	}
	if cluster != t.cfg.Cluster {
		return refuse(codes.FailedPrecondition, "it is of the cluster %q and this is %q: one of them was made anew; empty the state of the one that is wrong", cluster, t.cfg.Cluster)
	}
	if to != t.cfg.ID {
		return refuse(codes.FailedPrecondition, "it means server %d, whose address was given to another", to)
	}
	_, want, ok := t.cfg.Resolve(from)
	switch {
	case !ok:
		return refuse(codes.PermissionDenied, "no such server is a member: it was removed, or was never added")
	case want != node:
		return refuse(codes.PermissionDenied, "that server is node %s", want)
	}
	return nil
}

func first(md metadata.MD, key string) string {
	if all := md.Get(key); len(all) == 1 {
		return all[0]
	}
	return ""
}

// number returns a number of the metadata, 0 if there is none.
func number(md metadata.MD, key string) uint64 {
	n, err := strconv.ParseUint(first(md, key), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
