package replica

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
)

// ack is what a follower says to have: entries up to index, as the leader of the term has
// them.
type ack struct{ term, index uint64 }

// onlyNews reports whether a message of the leader has no entries and no question, only
// the word that entries were committed which this server has, and said so. The library
// answers it nevertheless, with that ack again.
//
// If the first one was lost, the leader learns of it as if this one was: it asks about
// entries that are not acknowledged when it hears of its next heartbeat, by a message
// that has nothing new about the commit; or has, if the word was lost as well: then it
// asks again at the heartbeat after that. What the commit waits for is always answered.
func (r *Replica) onlyNews(m *pb.Message) (ack, bool) {
	at := ack{m.GetTerm(), m.GetIndex()}
	if m.GetType() != pb.MsgApp || len(m.GetEntries()) > 0 || at.term != r.acked.term || at.index > r.acked.index {
		return at, false
	}
	s := r.node.BasicStatus().HardState
	news := at.term == s.GetTerm() && m.GetCommit() > s.GetCommit() && at.index >= m.GetCommit()
	return at, news
}

// needlessAck reports whether an answer is a needless one, and remembers it if not.
func (r *Replica) needlessAck(m *pb.Message) bool {
	if m.GetType() != pb.MsgAppResp || m.GetReject() {
		return false
	}
	at := ack{m.GetTerm(), m.GetIndex()}
	if i := slices.Index(r.needless, at); i >= 0 {
		r.needless = slices.Delete(r.needless, i, i+1)
		return true
	}
	if at.term != r.acked.term || at.index > r.acked.index {
		r.acked = at
	}
	return false
}
