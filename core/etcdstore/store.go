package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/fairlead/fairlead/core/api/etcd"
	"github.com/fairlead/fairlead/core/api/forward"
	"github.com/fairlead/fairlead/core/follow"
)

// Config is what a Store is made of. Fields without "optional" are required.
type Config struct {
	// Cluster is the name of Fairlead's cluster.
	Cluster string
	// Endpoints are those of the etcd cluster, host:port or http(s)://host:port.
	Endpoints []string
	TLS       TLS    // optional
	File      string // follow.Config's; optional

	Now     func() time.Time // wall clock
	Log     *slog.Logger
	Metrics prometheus.Registerer
}

// Store is the system keyspace in an etcd cluster: a follow.Source that is a
// follow.Writer as well.
type Store struct {
	*follow.Follower
	writer    follow.Writer
	forwarder *forward.Forwarder
}

var (
	_ follow.Source = (*Store)(nil)
	_ follow.Writer = (*Store)(nil)
)

// Prefix is what the keys of a cluster have in etcd.
func Prefix(cluster string) string { return "/fairlead/" + cluster + "/" }

// Open begins to follow. It does not wait for etcd.
func Open(cfg Config) (*Store, error) {
	if cfg.Cluster == "" || cfg.Now == nil || cfg.Log == nil || cfg.Metrics == nil {
		return nil, errors.New("etcdstore: Cluster, Now, Log and Metrics are required")
	}
	if strings.Contains(cfg.Cluster, "/") {
		return nil, fmt.Errorf("etcdstore: cluster.name %q has a slash, so that its keys in etcd could be those of another cluster: give it a name without", cfg.Cluster)
	}
	endpoints, err := parse(cfg.Endpoints, cfg.TLS)
	if err != nil {
		return nil, err
	}
	if _, err := cfg.TLS.load(""); err != nil {
		return nil, err
	}
	prefix := Prefix(cfg.Cluster)
	s := &Store{}
	s.forwarder, err = forward.New(forward.Config{
		Servers: func() []forward.Server { return endpoints.servers },
		Dial: func(s forward.Server, options ...grpc.DialOption) (*grpc.ClientConn, error) {
			return endpoints.dial(s.Address, options...)
		},
		Log: cfg.Log,
	})
	if err != nil {
		return nil, err
	}
	s.writer = follow.NewPrefixed(s.forwarder.Face(etcd.UserOnly), prefix)
	s.Follower, err = follow.Start(follow.Config{
		Servers: func() (out []follow.Server) {
			for _, one := range endpoints.servers {
				out = append(out, follow.Server(one))
			}
			return out
		},
		Dial: func(s follow.Server, options ...grpc.DialOption) (*grpc.ClientConn, error) {
			return endpoints.dial(s.Address, options...)
		},
		Prefix: prefix, File: cfg.File, Of: "etcd " + prefix, Now: cfg.Now, Log: cfg.Log, Metrics: cfg.Metrics,
	})
	if err != nil {
		s.forwarder.Stop()
		return nil, err
	}
	return s, nil
}

// Txn implements follow.Writer.
func (s *Store) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	return s.writer.Txn(ctx, q)
}

// Stop ends all calls, and writes the copy.
func (s *Store) Stop() {
	s.forwarder.Stop()
	s.Follower.Stop()
}
