package follow

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// ErrRewritten says that a server has another history than the copy, under the same
// id.
var ErrRewritten = errors.New("follow: the server has another history")

// verify sees that the server had, at the copy's revision, the keys of the copy. An
// etcd cluster that is restored from a backup may have the id that it had, and when it
// got beyond the copy's revision, nothing else tells. Our own servers have another id
// then. It wraps errCompacted if the history does not go back so far.
func (s *session) verify(ctx context.Context) error {
	if s.cfg.Prefix == "" || s.draft == nil {
		return nil
	}
	q := &pb.RangeRequest{Key: s.first, RangeEnd: s.end, Limit: pageKeys, Revision: s.draft.revision, KeysOnly: true, Serializable: true}
	keys := 0
	for {
		r, err := s.page(ctx, q)
		if rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted) {
			return errCompacted
		}
		if err != nil {
			return err
		}
		for _, kv := range r.Kvs {
			key, _ := strings.CutPrefix(string(kv.Key), s.cfg.Prefix)
			have, is := s.draft.keys.Get(key)
			if !is || have.Create != kv.CreateRevision || have.Mod != kv.ModRevision || have.Version != kv.Version {
				return s.rewritten()
			}
		}
		keys += len(r.Kvs)
		if !r.More || len(r.Kvs) == 0 {
			break
		}
		q.Key = append(r.Kvs[len(r.Kvs)-1].Key, 0)
	}
	if keys != s.draft.keys.Len() {
		return s.rewritten()
	}
	return nil
}

func (s *session) rewritten() error {
	err := fmt.Errorf("%w: at revision %d of cluster %016x it had other keys than are known here: if it was restored from a backup, %s",
		ErrRewritten, s.draft.revision, s.draft.cluster, s.cfg.reset(s.draft.cluster))
	return s.refuse(s.draft.cluster, err)
}
