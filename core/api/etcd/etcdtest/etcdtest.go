// Package etcdtest has servers of the store for tests: real ones, each a group of
// its own, in memory.
package etcdtest

import (
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/disk"
)

// T is what is needed of a *testing.T.
type T interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
	Output() io.Writer
}

// Server is a group of one, and what serves it.
type Server struct {
	*raft.Host
	API *etcd.Server

	hidden atomic.Bool
}

var _ etcd.Store = (*Server)(nil)

// Open starts a server, which leads when Open returns. It ends with the test.
func Open(t T, id uint64) *Server {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	s := &Server{}
	s.API = etcd.New(etcd.Config{Store: s, Log: log, MinLease: 50 * time.Millisecond})
	h, err := raft.Open(raft.Config{
		ID: id, Cluster: "abcd", Voters: []uint64{id}, Disk: disk.NewMemory(), Transport: raft.Alone{},
		HeartbeatInterval: 5 * time.Millisecond, ElectionTimeout: 20 * time.Millisecond, Sizes: raft.Sizes{SegmentBytes: 1 << 20},
		OnApply: func(raft.Applied) { s.API.Applied() }, Log: log, Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Host = h
	t.Cleanup(func() {
		s.API.Stop()
		h.Close()
	})
	for changed := h.Changed(); !h.State().Leads(); changed = h.Changed() {
		select {
		case <-changed:
		case <-h.Done():
			t.Fatal(h.Err())
		}
	}
	return s
}

// HideLeader makes the server say that nobody leads, or not any more.
func (s *Server) HideLeader(hidden bool) { s.hidden.Store(hidden) }

// Header implements etcd.Store.
func (s *Server) Header() etcd.Header {
	st := s.State()
	h := etcd.Header{ClusterID: 0xabcd, MemberID: s.ID(), Term: st.Term, Leader: st.Leader}
	if s.hidden.Load() {
		h.Leader = 0
	}
	return h
}

// Status implements etcd.Store.
func (s *Server) Status() etcd.Status {
	h := s.Header()
	index, _ := s.View().Applied()
	out := etcd.Status{ClusterID: h.ClusterID, MemberID: h.MemberID, Term: h.Term, Leader: h.Leader, Index: index}
	for _, id := range s.Members().GetVoters() {
		out.Members = append(out.Members, etcd.Member{ID: id, Name: "n1"})
	}
	return out
}
