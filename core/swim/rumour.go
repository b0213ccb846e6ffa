package swim

import (
	"slices"

	"github.com/fairlead/fairlead/core/swim/wire"
)

// class separates kinds of rumours, so that a flood of one leaves room for the
// others.
type class uint8

const (
	classClaim  class = 0 // who is alive
	classRecord class = 1 // what they run
	classes           = 2
)

// claimShare of a packet's room is the claims' while both classes have
// something to say; unused room goes to the other class. Where the records' part
// is too small for any of them, the next packet is theirs first.
const claimShare = 0.7

// leastRumour is less than any rumour takes; with less room there is no point
// in looking for one.
const leastRumour = 14

// maxMisfits is how many rumours are found too long for what is left of a
// packet before it goes as it is: a search for one that fits would cost a pass
// over all news for a few bytes.
const maxMisfits = 32

// rumour is the news about one subject in one class. What it says is encoded
// from the subject when it is sent, so it is always the newest.
//
// Invariant: a subject has at most one rumour per class; 0 <= sends < limit
// while queued, where limit is that of the members when it was last sent.
type rumour struct {
	subject *member
	class   class
	sends   int
	bytes   int // about what it takes in a packet
	queued  bool
}

// queue holds the rumours of one class by number of sends: bySends[s] has
// those sent s times, oldest first.
type queue struct {
	bySends [][]*rumour
	count   int
	bytes   int
}

func (q *queue) push(r *rumour) {
	for len(q.bySends) <= r.sends {
		q.bySends = append(q.bySends, nil)
	}
	q.bySends[r.sends] = append(q.bySends[r.sends], r)
	r.queued = true
	q.count++
	q.bytes += r.bytes
}

func (q *queue) remove(r *rumour) {
	if !r.queued {
		return
	}
	level := q.bySends[r.sends]
	for i := range slices.Backward(level) { // the newest are sent first, and then move on
		if level[i] == r {
			q.bySends[r.sends] = slices.Delete(level, i, i+1)
			break
		}
	}
	r.queued = false
	q.count--
	q.bytes -= r.bytes
}

// stalest is the oldest of the most-sent rumours.
func (q *queue) stalest() *rumour {
	for _, level := range slices.Backward(q.bySends) {
		if len(level) > 0 {
			return level[0]
		}
	}
	return nil
}

// spread queues the news of class c about m, as not sent yet.
func (n *Node) spread(m *member, c class) {
	r := &m.rumours[c]
	q := &n.queues[c]
	q.remove(r)
	if c == classClaim && isDead(m) && len(n.live.list) == 0 {
		return // see hush
	}
	*r = rumour{subject: m, class: c, bytes: rumourBytes(m, c)}
	q.push(r)
	n.wake()
	for q.bytes > n.cfg.QueueBytes/classes {
		n.counters.RumoursDropped++
		q.remove(q.stalest())
	}
}

// hush drops the news of deaths of a node that is left alone. That it was cut
// off is likelier than that it is the last; whoever it meets next knows better,
// and would bury healthy members on its word.
func (n *Node) hush() {
	for _, m := range n.graves.list {
		if isDead(m) {
			n.queues[classClaim].remove(&m.rumours[classClaim])
		}
	}
}

// forget drops all news about m.
func (n *Node) forget(m *member) {
	for c := range n.queues {
		n.queues[c].remove(&m.rumours[c])
	}
}

// piggyback appends rumours to a packet, least sent first and among those the
// newest first, until it has limit bytes, and counts them as sent.
func (n *Node) piggyback(buf []byte, limit int) []byte {
	room := limit - len(buf)
	n.sent = n.sent[:0]
	if n.queues[classRecord].count > 0 {
		if !n.recordsFirst {
			buf = n.fill(buf, classClaim, int(claimShare*float64(room)))
		}
		claims := len(n.sent)
		buf = n.fill(buf, classRecord, limit-len(buf))
		n.recordsFirst = !n.recordsFirst && len(n.sent) == claims
	}
	buf = n.fill(buf, classClaim, limit-len(buf))
	limitSends := n.cfg.retransmitLimit(n.liveCount())
	for _, r := range n.sent {
		q := &n.queues[r.class]
		q.remove(r)
		if r.sends++; r.sends < limitSends {
			q.push(r)
		}
	}
	return buf
}

// fill appends rumours of one class that take at most room bytes.
func (n *Node) fill(buf []byte, c class, room int) []byte {
	misfits := 0
	for _, level := range n.queues[c].bySends {
		for _, r := range slices.Backward(level) {
			if room < leastRumour || misfits == maxMisfits {
				return buf
			}
			if slices.Contains(n.sent, r) {
				continue
			}
			before := len(buf)
			buf = n.appendRumour(buf, r)
			if len(buf)-before > room {
				buf = buf[:before]
				misfits++
				continue
			}
			room -= len(buf) - before
			n.sent = append(n.sent, r)
		}
	}
	return buf
}

func (n *Node) appendRumour(buf []byte, r *rumour) []byte {
	if r.class == classRecord {
		return appendRecord(buf, r.subject)
	}
	c := r.subject.claimed(isAlive(r.subject), n.now)
	return wire.AppendClaim(buf, &c)
}

func appendRecord(buf []byte, m *member) []byte {
	return wire.AppendRecord(buf, m.id, m.record.Epoch, m.record.Seq, m.record.Payload)
}

func rumourBytes(m *member, c class) int {
	if c == classRecord {
		return 20 + len(m.record.Payload)
	}
	return 43 + len(m.name) + 8*m.accusers.Len()
}
