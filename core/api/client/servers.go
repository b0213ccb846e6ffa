package client

import (
	"context"
	"iter"

	"github.com/fairlead/fairlead/core/api/fairleadv1"
)

// RaftTransfer has the leadership handed to a voter, by name or id, and returns who
// leads then.
func (c *Client) RaftTransfer(ctx context.Context, server string) (id uint64, name string, err error) {
	r, err := c.agent.RaftTransfer(ctx, &fairleadv1.RaftTransferRequest{Server: server})
	if err != nil {
		return 0, "", c.callError("raft transfer", err)
	}
	return r.GetLeaderId(), r.GetLeaderName(), nil
}

// RaftRemoved is how far the removal of a server is.
type RaftRemoved struct {
	ID    uint64
	Name  string
	State string // asked, left, gone, cancelled
	Why   string // what is waited for
}

// RaftRemove asks for the removal of a server, by force also if nobody takes its
// place, or takes that back, and yields how it goes. The wish stands when ctx ends.
func (c *Client) RaftRemove(ctx context.Context, server string, force, cancel bool) iter.Seq2[RaftRemoved, error] {
	return func(yield func(RaftRemoved, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		stream, err := c.agent.RaftRemove(ctx, &fairleadv1.RaftRemoveRequest{Server: server, Force: force, Cancel: cancel})
		for err == nil {
			var r *fairleadv1.RaftRemoveResponse
			if r, err = stream.Recv(); err == nil && !yield(RaftRemoved{ID: r.GetId(), Name: r.GetName(), State: removal(r.GetState()), Why: r.GetWhy()}, nil) {
				return
			}
		}
		if !isEOF(err) {
			yield(RaftRemoved{}, c.callError("raft remove", err))
		}
	}
}

// removal names a step; one of a newer agent, unknown here, shows its number.
func removal(r fairleadv1.RaftRemoval) string {
	switch r {
	case fairleadv1.RaftRemoval_RAFT_REMOVAL_UNSPECIFIED:
		return ""
	case fairleadv1.RaftRemoval_RAFT_REMOVAL_ASKED:
		return "asked"
	case fairleadv1.RaftRemoval_RAFT_REMOVAL_LEFT:
		return "left"
	case fairleadv1.RaftRemoval_RAFT_REMOVAL_GONE:
		return "gone"
	case fairleadv1.RaftRemoval_RAFT_REMOVAL_CANCELLED:
		return "cancelled"
	}
	return r.String()
}

// RaftRecover gives up the cluster that the node waits for in vain, "" for whichever
// that is, and returns its id.
func (c *Client) RaftRecover(ctx context.Context, cluster string) (string, error) {
	r, err := c.agent.RaftRecover(ctx, &fairleadv1.RaftRecoverRequest{Cluster: cluster})
	if err != nil {
		return "", c.callError("raft recover", err)
	}
	return r.GetCluster(), nil
}

// RaftFollowed is what came of following servers that were refused.
type RaftFollowed struct {
	Revision    int64
	Keys        uint64
	WasCluster  string // of the copy before; empty: there was none
	WasRevision int64
	KeptAs      string // the file that has the copy before; empty: none
}

// RaftFollow has the agent follow servers of a cluster that it refuses.
func (c *Client) RaftFollow(ctx context.Context, cluster string) (RaftFollowed, error) {
	r, err := c.agent.RaftFollow(ctx, &fairleadv1.RaftFollowRequest{Cluster: cluster})
	if err != nil {
		return RaftFollowed{}, c.callError("raft follow", err)
	}
	return RaftFollowed{Revision: r.GetRevision(), Keys: r.GetKeys(), WasCluster: r.GetWasCluster(), WasRevision: r.GetWasRevision(), KeptAs: r.GetKeptAs()}, nil
}
