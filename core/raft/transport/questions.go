package transport

import (
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/transport/transportpb"
	"github.com/fairlead/fairlead/core/store"
)

var errQuestion = errors.New("transport: a question that asks for nothing")

func encodeQuestion(q raft.Question) (*transportpb.Question, error) {
	switch {
	case len(q.Commands) > 0:
		return &transportpb.Question{Kind: &transportpb.Question_Commands{Commands: store.EncodeCommands(q.Commands)}}, nil
	case q.Renew != nil:
		return &transportpb.Question{Kind: &transportpb.Question_Renew{Renew: encodeLease(q.Renew)}}, nil
	case q.Left != nil:
		return &transportpb.Question{Kind: &transportpb.Question_Left{Left: encodeLease(q.Left)}}, nil
	case q.Room != nil:
		return &transportpb.Question{Kind: &transportpb.Question_Room{Room: *q.Room}}, nil
	}
	return nil, errQuestion
}

func encodeLease(l *store.Lease) *transportpb.Lease {
	return &transportpb.Lease{Keyspace: uint32(l.Space), Id: int64(l.ID)}
}

func decodeQuestion(p *transportpb.Question) (q raft.Question, err error) {
	switch k := p.GetKind().(type) {
	case *transportpb.Question_Commands:
		q.Commands, err = store.DecodeCommands(k.Commands)
		if err == nil && len(q.Commands) == 0 {
			err = errQuestion
		}
	case *transportpb.Question_Renew:
		q.Renew, err = decodeLease(k.Renew)
	case *transportpb.Question_Left:
		q.Left, err = decodeLease(k.Left)
	case *transportpb.Question_Room:
		q.Room = &k.Room
	default:
		err = errQuestion
	}
	return q, err
}

func decodeLease(p *transportpb.Lease) (*store.Lease, error) {
	l := &store.Lease{Space: store.Keyspace(p.GetKeyspace()), ID: store.LeaseID(p.GetId())}
	if l.Space != store.System && l.Space != store.User || uint32(l.Space) != p.GetKeyspace() {
		return nil, fmt.Errorf("transport: a lease of the keyspace %d", p.GetKeyspace())
	}
	return l, nil
}

func encodeAnswer(a raft.Answer, err error) *transportpb.Answer {
	if err != nil {
		return failure(errors.Is(err, raft.ErrNotLeader), err.Error())
	}
	p := &transportpb.Answer{TtlNanoseconds: int64(a.TTL)}
	for _, r := range a.Results {
		p.Results = append(p.Results, store.EncodeResult(r))
	}
	return p
}

func failure(notLeader bool, text string) *transportpb.Answer {
	return &transportpb.Answer{Failure: &transportpb.Failure{NotLeader: notLeader, Text: text}}
}

// decodeAnswer reads the answer of a server.
func decodeAnswer(p *transportpb.Answer, of uint64) (raft.Answer, error) {
	if f := p.GetFailure(); f != nil {
		if f.GetNotLeader() {
			return raft.Answer{}, fmt.Errorf("%w: server %d says so: %s", raft.ErrNotLeader, of, f.GetText())
		}
		return raft.Answer{}, fmt.Errorf("transport: server %d says: %s", of, f.GetText())
	}
	a := raft.Answer{TTL: time.Duration(p.GetTtlNanoseconds())}
	for _, data := range p.GetResults() {
		r, err := store.DecodeResult(data)
		if err != nil {
			return raft.Answer{}, fmt.Errorf("transport: the answer of server %d: %w", of, err)
		}
		a.Results = append(a.Results, r)
	}
	return a, nil
}
