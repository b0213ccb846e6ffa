package pluginhost

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// questions counts what a provider is asked.
type questions struct {
	healthpb.UnimplementedHealthServer
	asked atomic.Int64
	mute  atomic.Bool
	limit atomic.Int64 // that the last question set, in nanoseconds
}

func (q *questions) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	q.asked.Add(1)
	if until, ok := ctx.Deadline(); ok {
		q.limit.Store(int64(time.Until(until)))
	}
	if q.mute.Load() { // as if the time were over
		return nil, status.FromContextError(context.DeadlineExceeded).Err()
	}
	return &healthpb.HealthCheckResponse{}, nil
}

// Who is heard from is not asked; who falls silent is, and is lost if no answer
// comes.
func TestBeatAsksWhoIsSilent(t *testing.T) {
	q := &questions{}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, q)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})

	i := &instance{name: "silent", lost: make(chan struct{})}
	i.ctx, i.end = context.WithCancel(t.Context())
	defer i.end()
	if i.conn, err = dial(i.name, socket, &i.heard); err != nil {
		t.Fatal(err)
	}
	defer i.conn.Close()
	if _, err := healthpb.NewHealthClient(i.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := connected(t.Context(), i.conn, socket); err != nil {
		t.Fatal(err)
	}

	const beats = 50
	ticks := make(chan time.Time)
	done := make(chan struct{})
	missed := make(chan struct{}, 3)
	timing := Timing{Answer: patience, Misses: 3}
	go func() {
		defer close(done)
		i.beatAt(ticks, timing, func() { missed <- struct{}{} })
	}()
	for range beats {
		i.heard.Store(true)
		ticks <- time.Time{}
		// Until this beat took note; a late frame of gRPC sets it again. The other
		// goroutine may have no CPU for a while, or the whole process: so both bounds.
		for begun, tries := time.Now(), 0; i.heard.Load() && (tries < 100_000 || time.Since(begun) < time.Second); tries++ {
			runtime.Gosched()
		}
	}
	if n := q.asked.Load(); n != 0 {
		t.Fatalf("asked %d times while it was heard from", n)
	}
	for q.asked.Load() < 2 {
		ticks <- time.Time{}
	}
	q.mute.Store(true)
	for ended := false; !ended; {
		select {
		case ticks <- time.Time{}:
		case <-done:
			ended = true
		}
	}
	<-i.lost
	if n := len(missed); n != timing.Misses {
		t.Errorf("lost after %d misses, want %d", n, timing.Misses)
	}
	if d := time.Duration(q.limit.Load()); d <= 0 || d > timing.Answer {
		t.Errorf("an answer may take %v, want %v", d, timing.Answer)
	}
}

func TestHearingNotesWhatComes(t *testing.T) {
	var heard atomic.Bool
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		_, _ = far.Write([]byte("x"))
		_ = far.Close()
	}()
	h := hearing{near, &heard}
	b := make([]byte, 8)
	if n, err := h.Read(b); n != 1 || err != nil || !heard.Swap(false) {
		t.Fatalf("Read = %d, %v; heard was not set", n, err)
	}
	if _, err := h.Read(b); err == nil || heard.Load() {
		t.Fatalf("the end of a stream counts as a sign of life (%v)", err)
	}
}
