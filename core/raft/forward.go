package raft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/fairlead/fairlead/core/store"
)

// Commands that come to a server which does not lead go to the leader as a message,
// MsgProp, and nothing comes back: what they come to is learnt where all learn it, when
// the entry is applied. What the leader does not put into its log it gives back, by a
// MsgProp that has Reject.

// maxForwarded bounds the commands of other servers that wait for the loop, in bytes.
const maxForwarded = 64 << 20

var errForwarded = errors.New("raft: a message with commands that has none, or ones without a client")

// forward sends a command to the leader.
func (h *Host) forward(leader uint64, c store.Command) {
	h.cfg.Transport.Send(h.forwarding(leader, store.EncodeCommands([]store.Command{c}), false))
}

func (h *Host) forwarding(to uint64, data []byte, reject bool) *pb.Message {
	m := &pb.Message{Type: pb.MsgProp.Enum(), From: new(h.cfg.ID), To: new(to), Entries: []*pb.Entry{{Data: data}}}
	if reject {
		m.Reject = new(true)
	}
	return m
}

// receiveForwarded takes commands of another server, or gives them back; or it takes
// back its own.
func (h *Host) receiveForwarded(m *pb.Message) error {
	if len(m.GetEntries()) != 1 {
		return errForwarded
	}
	data := m.GetEntries()[0].GetData()
	if m.GetReject() {
		return h.takeBack(data)
	}
	commands, err := store.DecodeCommands(data)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(commands, func(c store.Command) bool { return c.Client == nil }) {
		return errForwarded
	}
	if !h.State().Leads() {
		h.giveBack(m.GetFrom(), untakenOnes(commands))
		return nil
	}
	var taken []store.Command
	var back []refusal
	for i := range commands {
		c := &commands[i]
		if err := h.refuses(c); err != nil {
			back = append(back, refusal{callOf(c.Client), store.EncodeResult(store.Result{Err: err, Revision: h.revision(c.Space)})})
			continue
		}
		taken = append(taken, *c)
	}
	if p := (proposal{commands: taken, from: m.GetFrom()}); len(taken) > 0 && !h.queueForwarded(p) {
		back = untakenOnes(commands)
	}
	if len(back) > 0 {
		h.giveBack(m.GetFrom(), back)
	}
	return nil
}

// queueForwarded gives commands of another server to the loop; false if too many wait.
func (h *Host) queueForwarded(p proposal) bool {
	size := int64(p.size())
	if h.forwarded.Add(size) <= maxForwarded {
		select {
		case h.proposals <- p:
			return true
		default:
		}
	}
	h.forwarded.Add(-size)
	return false
}

// refusal is a command that is not put into the log.
type refusal struct {
	id     callID
	result []byte // encoded; none: it may be sent again
}

func untakenOnes(commands []store.Command) (out []refusal) {
	for i := range commands {
		out = append(out, refusal{id: callOf(commands[i].Client)})
	}
	return out
}

// giveBack tells a server which of its commands are not put into the log.
func (h *Host) giveBack(to uint64, all []refusal) {
	var b []byte
	for _, r := range all {
		b = append(b, r.id.client[:]...)
		b = binary.AppendUvarint(b, r.id.sequence)
		b = append(binary.AppendUvarint(b, uint64(len(r.result))), r.result...)
	}
	h.cfg.Transport.Send(h.forwarding(to, b, true))
}

// takeBack tells those who wait for commands that the leader gave back.
func (h *Host) takeBack(b []byte) error {
	for len(b) > 0 {
		var r refusal
		n := copy(r.id.client[:], b)
		b = b[n:]
		var ok bool
		if r.id.sequence, b, ok = uvarint(b); !ok || n < len(r.id.client) {
			return errForwarded
		}
		var size uint64
		if size, b, ok = uvarint(b); !ok || size > uint64(len(b)) {
			return errForwarded
		}
		r.result, b = b[:size], b[size:]
		if size == 0 {
			h.waiters.untaken(r.id)
			continue
		}
		result, err := store.DecodeResult(r.result)
		if err != nil {
			return fmt.Errorf("raft: the refusal of a command: %w", err)
		}
		h.waiters.refused(r.id, result)
	}
	return nil
}

func uvarint(b []byte) (n uint64, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return 0, nil, false
	}
	return n, b[size:], true
}
