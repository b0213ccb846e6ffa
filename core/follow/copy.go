package follow

import (
	"iter"
	"strings"

	"github.com/tidwall/btree"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/fairlead/fairlead/core/store"
)

// Copy is a State of its own.
type Copy struct {
	cluster  uint64
	revision int64
	keys     *btree.Map[string, store.KeyValue] // not written to
}

var _ State = (*Copy)(nil)

// Cluster implements State.
func (c *Copy) Cluster() uint64 { return c.cluster }

// Revision implements State.
func (c *Copy) Revision() int64 { return c.revision }

// Get implements State.
func (c *Copy) Get(key string) (store.KeyValue, bool) { return c.keys.Get(key) }

// Range implements State.
func (c *Copy) Range(prefix string) iter.Seq[store.KeyValue] {
	return func(yield func(store.KeyValue) bool) {
		c.keys.Ascend(prefix, func(key string, kv store.KeyValue) bool {
			return strings.HasPrefix(key, prefix) && yield(kv)
		})
	}
}

// draft is a Copy in the making. One goroutine has it.
type draft struct {
	cluster  uint64
	revision int64
	keys     *btree.Map[string, store.KeyValue]
}

func newDraft(cluster uint64, revision int64) *draft {
	return &draft{cluster: cluster, revision: revision, keys: &btree.Map[string, store.KeyValue]{}}
}

// copy returns what it is now. It costs the same whatever there is.
func (d *draft) copy() *Copy {
	return &Copy{cluster: d.cluster, revision: d.revision, keys: d.keys.Copy()}
}

// put takes a key as etcd tells it; those without the prefix are not ours.
func (d *draft) put(prefix string, kv *mvccpb.KeyValue) {
	key, ours := strings.CutPrefix(string(kv.Key), prefix)
	if !ours {
		return
	}
	d.keys.Set(key, store.KeyValue{
		Key: key, Value: kv.Value, Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version, Lease: store.LeaseID(kv.Lease),
	})
}

// apply takes all events of some revisions. Those that it has are not taken again.
func (d *draft) apply(prefix string, events []*mvccpb.Event) {
	newest := d.revision
	for _, e := range events {
		if e.Kv.ModRevision <= d.revision {
			continue
		}
		newest = max(newest, e.Kv.ModRevision)
		if e.Type == mvccpb.DELETE {
			if key, ours := strings.CutPrefix(string(e.Kv.Key), prefix); ours {
				d.keys.Delete(key)
			}
			continue
		}
		d.put(prefix, e.Kv)
	}
	d.revision = newest
}
