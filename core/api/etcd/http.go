package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/status"
)

// healthTime is what a check of the health may take.
const healthTime = 5 * time.Second

// HTTP returns what etcd answers by plain HTTP on the port of its clients, as far
// as checks and balancers ask for it: GET /health and GET /version. Of the store
// nothing else is told.
func (f *Front) HTTP() http.Handler {
	e := f.enter(UserOnly)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", e.health)
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, versions{Server: version, Cluster: version})
	})
	return mux
}

// versions and health are etcd's answers.
type versions struct {
	Server  string `json:"etcdserver"`
	Cluster string `json:"etcdcluster"`
}

type health struct {
	Health string `json:"health"` // true or false
	Reason string `json:"reason"`
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// health answers 200, or 503 with a reason. As in etcd serializable=true asks for
// the server alone, and exclude=NOSPACE does not mind that the store is full.
func (e *entrance) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), healthTime)
	defer cancel()
	q := r.URL.Query()
	if err := e.check(ctx, q.Get("serializable") == "true", slices.Contains(q["exclude"], pb.AlarmType_NOSPACE.String())); err != nil {
		reply(w, http.StatusServiceUnavailable, health{"false", err.Error()})
		return
	}
	reply(w, http.StatusOK, health{Health: "true"})
}

// check returns why the store cannot be used.
func (e *entrance) check(ctx context.Context, serializable, mayBeFull bool) error {
	s, err := e.services()
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	st, err := s.Status(ctx, &pb.StatusRequest{})
	switch {
	case err != nil:
		return errors.New("STATUS ERROR:" + status.Convert(err).Message())
	case !mayBeFull && slices.ContainsFunc(st.Errors, isFull):
		return errors.New("ALARM NOSPACE")
	case serializable:
		return nil
	case st.Leader == 0:
		return errors.New("RAFT NO LEADER")
	}
	if _, err := s.Range(ctx, &pb.RangeRequest{Key: []byte("health"), CountOnly: true}); err != nil {
		return errors.New("RANGE ERROR:" + status.Convert(err).Message())
	}
	return nil
}

func isFull(problem string) bool { return strings.Contains(problem, pb.AlarmType_NOSPACE.String()) }
