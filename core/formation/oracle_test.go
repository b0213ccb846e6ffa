package formation

import (
	"slices"

	"github.com/fairlead/fairlead/core/model"
)

// oracle knows all that happened, and holds the sentences of doc.go against it.
type oracle struct {
	ballots   map[ClusterID]*Ballot
	yes       map[ClusterID]map[model.NodeID]witnessed
	withdrawn map[ClusterID]bool
	formed    []ClusterID
}

// witnessed is what a server had been told when it gave its yes.
type witnessed struct {
	settled, known []model.NodeID
}

// dirHistory is what happened to a data directory.
type dirHistory struct {
	heard, recovered map[ClusterID]bool
	decided          ClusterID
}

func newOracle() oracle {
	return oracle{
		ballots: map[ClusterID]*Ballot{}, yes: map[ClusterID]map[model.NodeID]witnessed{},
		withdrawn: map[ClusterID]bool{},
	}
}

func newDirHistory() dirHistory {
	return dirHistory{heard: map[ClusterID]bool{}, recovered: map[ClusterID]bool{}}
}

// wrote judges a record that has become durable.
func (w *world) wrote(m *machine, old, rec Record) {
	if b := rec.Yes; b != nil {
		w.sameBody(m, b)
		if old.Yes == nil || old.Yes.Cluster != b.Cluster {
			w.gaveYes(m, b)
		}
	}
	if b := old.Yes; b != nil && (rec.Yes == nil || rec.Yes.Cluster != b.Cluster) {
		w.tookBack(m, b, rec)
	}
	b := rec.Formed
	if old.Formed != nil && (b == nil || b.Cluster != old.Formed.Cluster) {
		w.find("invariant formed-is-for-ever: %s had %s, and now %s", m.name, describe(old), describe(rec))
		return
	}
	if b != nil && old.Formed == nil && len(b.Voters) > 0 {
		w.sameBody(m, b)
		if b.size() == 1 {
			w.gaveYes(m, b) // in the same write
		}
		w.hasFormed(m, b)
	}
}

// sameBody: all speak of one ballot by one id.
func (w *world) sameBody(m *machine, b *Ballot) {
	known := w.ballots[b.Cluster]
	if known == nil {
		w.ballots[b.Cluster] = b
		if b.Candidate != m.id {
			w.find("invariant persisted-first: %s holds a ballot that its candidate did not write", m.name)
		}
		return
	}
	if b.Candidate != known.Candidate || !slices.Equal(b.Voters, known.Voters) || !slices.Equal(b.Witnesses, known.Witnesses) {
		w.find("invariant one-body: cluster %s is %v and %v", b.Cluster, b, known)
	}
}

// gaveYes: a yes is given to what covers all that its giver was told of.
func (w *world) gaveYes(m *machine, b *Ballot) {
	var seen witnessed
	for _, o := range m.last {
		if o.Cluster == 0 && o.Expect > 0 {
			seen.known = append(seen.known, o.ID)
			if since, ok := m.told[o.ID]; ok && w.elapsed-since >= DefaultStable {
				seen.settled = append(seen.settled, o.ID)
			}
		}
	}
	if w.yes[b.Cluster] == nil {
		w.yes[b.Cluster] = map[model.NodeID]witnessed{}
	}
	w.yes[b.Cluster][m.id] = seen
	for _, id := range seen.settled {
		if !b.has(id) {
			w.find("invariant covers-the-seen: %s sees %x, which cluster %s leaves out", m.name, uint64(id), b.Cluster)
		}
	}
	if 2*b.size() <= len(seen.known)+1 {
		w.find("invariant more-than-half: %s knows %d servers, cluster %s asks %d", m.name, len(seen.known)+1, b.Cluster, b.size())
	}
	for c := range m.dir.heard {
		if c != b.Cluster && !m.dir.recovered[c] {
			w.find("invariant never-beside-a-cluster: %s knew cluster %s and said yes to %s", m.name, c, b.Cluster)
		}
	}
	if len(b.Voters) != m.expect {
		w.find("invariant expect: %s says yes to %d voters, bootstrap_expect is %d", m.name, len(b.Voters), m.expect)
	}
}

// tookBack: a yes ends with the cluster, with its candidate's word, or with an
// operator's.
func (w *world) tookBack(m *machine, b *Ballot, rec Record) {
	formed := slices.Contains(w.formed, b.Cluster)
	switch {
	case rec.Formed != nil && rec.Formed.Cluster == b.Cluster, rec.Seen == b.Cluster && formed, m.dir.recovered[b.Cluster]:
	case b.Candidate == m.id:
		if formed {
			w.find("invariant withdrawn-never-forms: %s takes back cluster %s, which has formed", m.name, b.Cluster)
		}
		w.withdrawn[b.Cluster] = true
	case !w.withdrawn[b.Cluster]:
		w.find("invariant yes-is-binding: %s took back its yes to %s: %s", m.name, b.Cluster, describe(rec))
	}
}

// hasFormed: a cluster forms by its candidate, once all that have to agree did.
func (w *world) hasFormed(m *machine, b *Ballot) {
	if slices.Contains(w.formed, b.Cluster) {
		return
	}
	w.formed = append(w.formed, b.Cluster)
	if m.id != b.Candidate {
		w.find("invariant candidate-decides: %s holds cluster %s as formed, its candidate does not", m.name, b.Cluster)
	}
	if w.withdrawn[b.Cluster] {
		w.find("invariant withdrawn-never-forms: cluster %s", b.Cluster)
	}
	for _, id := range b.all() {
		o := w.holder(id)
		switch {
		case o == nil || o == m || o.dir.recovered[b.Cluster]: // its disk is gone, or it is the one
		case o.record().Yes == nil || o.record().Yes.Cluster != b.Cluster:
			w.find("invariant all-agreed: cluster %s formed, and %s holds %s", b.Cluster, o.name, describe(o.record()))
		}
		if _, ok := w.yes[b.Cluster][id]; !ok {
			w.find("invariant all-agreed: cluster %s formed without a yes of %x", b.Cluster, uint64(id))
		}
	}
	for _, other := range w.formed[:len(w.formed)-1] {
		w.twoClusters(b, w.ballots[other])
	}
}

// twoClusters judges the second of two.
func (w *world) twoClusters(a, b *Ballot) {
	if w.gone(a.Cluster) || w.gone(b.Cluster) {
		return
	}
	for _, id := range a.all() {
		if b.has(id) {
			w.find("invariant no-overlap: %x agreed to clusters %s and %s", uint64(id), a.Cluster, b.Cluster)
		}
	}
	if w.oneSaw(a, b) || w.oneSaw(b, a) {
		w.find("invariant no-second-in-sight: clusters %s and %s", a.Cluster, b.Cluster)
	}
	if w.oneKnew(a, b) && w.oneKnew(b, a) {
		w.find("invariant no-second-of-the-known: clusters %s and %s", a.Cluster, b.Cluster)
	}
}

// gone: an operator gave it up, and no disk holds it.
func (w *world) gone(c ClusterID) bool {
	return !w.extant(c) && slices.ContainsFunc(w.machines, func(m *machine) bool { return m.dir.recovered[c] })
}

func (w *world) extant(c ClusterID) bool {
	return slices.ContainsFunc(w.machines, func(m *machine) bool {
		f := m.record().Formed
		return f != nil && f.Cluster == c && f.voter(m.id)
	})
}

// oneSaw reports whether someone who agreed to a saw one of b.
func (w *world) oneSaw(a, b *Ballot) bool {
	for _, seen := range w.yes[a.Cluster] {
		if slices.ContainsFunc(seen.settled, b.has) {
			return true
		}
	}
	return false
}

// oneKnew reports whether someone who agreed to a knew all of b.
func (w *world) oneKnew(a, b *Ballot) bool {
	for _, seen := range w.yes[a.Cluster] {
		if !slices.ContainsFunc(b.all(), func(id model.NodeID) bool { return !slices.Contains(seen.known, id) }) {
			return true
		}
	}
	return false
}

// sends: nothing leaves before what it rests on is durable.
func (w *world) sends(m *machine, msg Message) {
	rec := m.record()
	c := msg.Ballot.Cluster
	bound := rec.Yes != nil && rec.Yes.Cluster == c
	formed := rec.Formed != nil && rec.Formed.Cluster == c
	ok := true
	switch msg.Kind {
	case KindAsk, KindYes, KindQuery:
		ok = bound
	case KindWithdrawn:
		ok = !bound && !formed && msg.Ballot.Candidate == m.id
	case KindFormed:
		ok = formed
	}
	if !ok {
		w.find("invariant persisted-first: %s sends kind %d for %s, its disk holds %s", m.name, msg.Kind, c, describe(rec))
	}
}

// decided: a voter starts once it is durable, and for one cluster in its life.
func (w *world) decided(m *machine, d *Decision) {
	f := m.record().Formed
	if f == nil || f.Cluster != d.Cluster || !slices.Equal(f.Voters, d.Voters) || !slices.Contains(w.formed, d.Cluster) {
		w.find("invariant persisted-first: %s starts cluster %s, its disk holds %s", m.name, d.Cluster, describe(m.record()))
	}
	if m.dir.decided != 0 && m.dir.decided != d.Cluster {
		w.find("invariant formed-is-for-ever: %s starts %s after %s", m.name, d.Cluster, m.dir.decided)
	}
	m.dir.decided = d.Cluster
}
