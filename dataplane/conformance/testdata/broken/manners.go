package main

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
)

// polite lets all calls but Reconcile wait for their turn.
type polite struct {
	inner
	mu sync.Mutex
}

func queuesOthers(i inner) inner { return &polite{inner: i} }

func (p *polite) Reconcile(s stream) error {
	if !p.mu.TryLock() {
		return status.Error(codes.Aborted, "busy")
	}
	defer p.mu.Unlock()
	return p.inner.Reconcile(s)
}

func (p *polite) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inner.Configure(ctx, r)
}

// impatient gives each message a tenth of a second.
type impatient struct{ inner }

func hurriesTheHost(i inner) inner { return impatient{i} }

func (i impatient) Reconcile(s stream) error { return i.inner.Reconcile(hurried{s}) }

type hurried struct{ stream }

func (h hurried) Recv() (*pb.ReconcileRequest, error) {
	type got struct {
		m   *pb.ReconcileRequest
		err error
	}
	next := make(chan got, 1)
	go func() {
		m, err := h.stream.Recv()
		next <- got{m, err}
	}()
	select {
	case g := <-next:
		return g.m, g.err
	case <-time.After(100 * time.Millisecond):
		return nil, status.Error(codes.DeadlineExceeded, "no message in 100 ms")
	}
}

// offended does nothing more once a call was given up.
type offended struct {
	inner
	mu    sync.Mutex
	leave bool
}

func sulksAfterDeadline(i inner) inner { return &offended{inner: i} }

func (o *offended) Reconcile(s stream) error {
	o.mu.Lock()
	leave := o.leave
	o.mu.Unlock()
	if leave {
		return status.Error(codes.Internal, "a former call left things half done")
	}
	err := o.inner.Reconcile(s)
	if s.Context().Err() != nil {
		o.mu.Lock()
		o.leave = true
		o.mu.Unlock()
	}
	return err
}

// fresh begins anew with each configuration, also with the same.
type fresh struct{ inner }

func configureForgets(i inner) inner { return fresh{i} }

func (f fresh) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	m, err := f.inner.Configure(ctx, r)
	if err == nil {
		_, err = f.inner.Cleanup(ctx, &pb.CleanupRequest{Scope: pb.CleanupScope_CLEANUP_SCOPE_OWNED, InstanceId: r.GetInstanceId()})
	}
	return m, err
}

// crowded keeps each watcher for ever.
type crowded struct {
	inner
	mu    sync.Mutex
	watch int
}

func keepsWatchers(i inner) inner { return &crowded{inner: i} }

func (c *crowded) Watch(r *pb.WatchRequest, s grpc.ServerStreamingServer[pb.WatchResponse]) error {
	c.mu.Lock()
	c.watch++
	full := c.watch > 16
	c.mu.Unlock()
	if full {
		return status.Error(codes.ResourceExhausted, "16 watch already")
	}
	return c.inner.Watch(r, s)
}

// boastful says that it cleaned up.
type boastful struct{ inner }

func saysItCleaned(i inner) inner { return boastful{i} }

func (b boastful) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	dry := proto.CloneOf(r)
	dry.DryRun = true
	m, err := b.inner.Cleanup(ctx, dry)
	for _, i := range m.GetItems() {
		if !r.GetDryRun() && i.GetResult() == pb.CleanupResult_CLEANUP_RESULT_WOULD_REMOVE {
			i.Result = pb.CleanupResult_CLEANUP_RESULT_REMOVED
		}
	}
	return m, err
}

// bound cleans up by its configuration, and has to have one.
type bound struct {
	inner
	mu         sync.Mutex
	configured bool
}

func cleanupWantsConfigure(i inner) inner { return &bound{inner: i} }

func (b *bound) Configure(ctx context.Context, r *pb.ConfigureRequest) (*pb.ConfigureResponse, error) {
	m, err := b.inner.Configure(ctx, r)
	b.mu.Lock()
	b.configured = b.configured || err == nil
	b.mu.Unlock()
	return m, err
}

func (b *bound) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	b.mu.Lock()
	configured := b.configured
	b.mu.Unlock()
	if !configured {
		return nil, status.Error(codes.FailedPrecondition, "Configure comes first")
	}
	return b.inner.Cleanup(ctx, r)
}

// narrow cleans up after one instance, and wants to know which.
type narrow struct{ inner }

func cleanupWantsInstance(i inner) inner { return narrow{i} }

func (n narrow) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	if r.GetInstanceId() == "" {
		return nil, status.Error(codes.InvalidArgument, "no instance id")
	}
	return n.inner.Cleanup(ctx, r)
}

// willing does what an unknown word may have meant.
type willing struct{ inner }

func guessesScope(i inner) inner { return willing{i} }

func (w willing) Cleanup(ctx context.Context, r *pb.CleanupRequest) (*pb.CleanupResponse, error) {
	if r.GetScope() != pb.CleanupScope_CLEANUP_SCOPE_ALL_KNOWN {
		r = proto.CloneOf(r)
		r.Scope = pb.CleanupScope_CLEANUP_SCOPE_OWNED
	}
	return w.inner.Cleanup(ctx, r)
}

// unending has nothing to prepare, and does not say so.
type unending struct{ inner }

func noShutdown(i inner) inner { return unending{i} }

func (unending) Shutdown(context.Context, *pb.ShutdownRequest) (*pb.ShutdownResponse, error) {
	return nil, status.Error(codes.Unimplemented, "not here")
}
