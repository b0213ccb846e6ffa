package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/replica"
	"github.com/fairlead/fairlead/core/server/serverpb"
)

// The errors of what a server cannot do by itself.
var (
	// ErrNoServer: somebody else has to be asked.
	ErrNoServer = errors.New("server: this agent is no server of the store now")
	errNoLeader = errors.New("server: nobody leads: most of the servers have to run and to reach each other")
)

// Standing is what this server knows of itself, and the leader of the group.
type Standing struct {
	raft.Standing
	Lacks string // PartConfig's
}

// standingTimeout bounds how long the leader is asked.
const standingTimeout = time.Second

// Standing returns how this server stands, with what the leader knows of the group:
// that is asked, and the error says that it could not be. Then Members is nil.
func (p *Part) Standing(ctx context.Context) (Standing, error) {
	s := p.Server()
	if s == nil {
		return Standing{}, ErrNoServer
	}
	out, err := p.standing(s)
	if err != nil || out.Members != nil {
		return out, err
	}
	leads, err := p.calls.leader(s)
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, standingTimeout)
	defer cancel()
	r, err := leads.Standing(ctx, &serverpb.StandingRequest{Group: s.identity.Cluster})
	if err != nil {
		return out, fmt.Errorf("server: the leader was asked in vain: %s", status.Convert(err).Message())
	}
	out.learn(r)
	return out, nil
}

// standing is what a server knows by itself.
func (p *Part) standing(s *Server) (Standing, error) {
	st, err := s.Host.Standing()
	out := Standing{Standing: st}
	if st.Members != nil && p.cfg.Lacks != nil {
		out.Lacks = p.cfg.Lacks()
	}
	return out, err
}

func (s Standing) encode() *serverpb.StandingResponse {
	out := &serverpb.StandingResponse{Commit: s.Commit, Low: s.Low, NoSpace: s.NoSpace, Lacks: s.Lacks}
	for _, m := range s.Members {
		out.Members = append(out.Members, &serverpb.Progress{Id: m.ID, Match: m.Match, Active: m.Active})
	}
	if !s.Joint.IsZero() {
		out.JointSince = s.Joint.UnixMilli()
	}
	return out
}

// learn takes what the leader knows better.
func (s *Standing) learn(r *serverpb.StandingResponse) {
	s.Commit = max(s.Commit, r.GetCommit())
	s.Low, s.NoSpace, s.Lacks = r.GetLow(), r.GetNoSpace(), r.GetLacks()
	s.Members = []replica.Member{}
	for _, m := range r.GetMembers() {
		s.Members = append(s.Members, replica.Member{ID: m.GetId(), Match: m.GetMatch(), Active: m.GetActive()})
	}
	s.Joint = time.Time{}
	if ms := r.GetJointSince(); ms != 0 {
		s.Joint = time.UnixMilli(ms)
	}
}
