package raft

import (
	"fmt"
	"testing"

	"github.com/fairlead/fairlead/core/store"
)

// The first write of a term is that of the leader's key: who has an answer of the
// leader finds it named.
func TestLeaderIsNamedBeforeItAnswers(t *testing.T) {
	g := newGroup(t, 1, little())
	for i := range 20 {
		h := g.leader()
		g.put(h, fmt.Sprint("key-", i), "1")
		found, err := h.View().Range(store.System, store.RangeOp{Range: store.Range{Key: LeaderKey}})
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprintf("1 %d", h.State().Term); len(found.KVs) != 1 || string(found.KVs[0].Value) != want {
			t.Fatalf("after a write in term %d the leader's key is %+v", h.State().Term, found.KVs)
		}
		g.close(1)
		g.open(1)
	}
}
