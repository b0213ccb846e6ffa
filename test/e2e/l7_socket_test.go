package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// socket is a WebSocket through a proxy to an instance that echoes.
type socket struct {
	*httpConn
	sent uint64
}

const handshakeRequest = "GET /echo HTTP/1.1\r\nHost: web\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"

func openSocket(node *netns.Node, at string) (*socket, error) {
	s := &socket{httpConn: newHTTPConn(node, at)}
	if err := s.open(patience); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(s.conn, handshakeRequest); err != nil {
		return nil, err
	}
	var head []string
	for {
		line, err := s.reader.ReadString('\n')
		if err != nil {
			return nil, err
		}
		if line == "\r\n" {
			break
		}
		head = append(head, strings.TrimSpace(line))
	}
	const accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" // RFC 6455 section 1.3
	if all := strings.Join(head, "\n"); !strings.HasPrefix(all, "HTTP/1.1 101 ") || !strings.Contains(all, accept) {
		return nil, fmt.Errorf("handshake: %s", all)
	}
	return s, nil
}

// echoes sends a message and waits for it.
func (s *socket) echoes() error {
	if err := s.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	s.sent++
	message := fmt.Sprintf("message %d\n", s.sent)
	if _, err := io.WriteString(s.conn, message); err != nil {
		return fmt.Errorf("message %d: %w", s.sent, err)
	}
	got, err := s.reader.ReadString('\n')
	if err == nil && got != message {
		err = fmt.Errorf("echo of %q", got)
	}
	if err != nil {
		return fmt.Errorf("message %d: %w", s.sent, err)
	}
	return nil
}

// crowd is many WebSockets that echo all the time.
type crowd struct {
	t       *testing.T
	sockets []*socket
	over    chan struct{}
	all     sync.WaitGroup
	echoed  atomic.Int64
}

// newCrowd opens n WebSockets.
func newCrowd(t *testing.T, node *netns.Node, at string, n int) *crowd {
	t.Helper()
	c := &crowd{t: t, over: make(chan struct{})}
	for range n {
		s, err := openSocket(node, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.close)
		c.sockets = append(c.sockets, s)
	}
	for i, s := range c.sockets {
		c.all.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				if err := s.echoes(); err != nil {
					t.Errorf("WebSocket %d dropped: %v", i, err)
					return
				}
				c.echoed.Add(1)
				select {
				case <-c.over:
					return
				case <-tick.C:
				}
			}
		})
	}
	return c
}

// complete ends it, and fails the test if one was dropped.
func (c *crowd) complete() {
	c.t.Helper()
	close(c.over)
	c.all.Wait()
	for i, s := range c.sockets {
		if err := s.echoes(); err != nil {
			c.t.Errorf("WebSocket %d, in the end: %v", i, err)
		}
	}
}

// TestL7SocketsOverSnapshots: WebSockets stay open and echo while the proxy is
// given 1,000 snapshots in 10 s: services come and go, and the endpoints of the
// WebSockets' own service change in all ways but going. The test is the agent,
// as an agent that is busy with other things makes fewer snapshots of it.
func TestL7SocketsOverSnapshots(t *testing.T) {
	t.Parallel()
	a := newFleet(t, 1).agents[0]
	at := filepath.Join(a.dir+".l7", "provider.sock")
	proxy := a.alone("--provider-socket", at)
	feed := newFeed(t, at)
	var instances []dataplane.Endpoint
	for i := range 2 {
		name := fmt.Sprint("web-", i)
		a.runs(instancePort+i, name)
		instances = append(instances, dataplane.Endpoint{
			ID: uint64(i + 1), Name: name, Weight: 1, Addr: netip.AddrPortFrom(a.node.Addr(), uint16(instancePort+i)),
		})
	}
	own := func(weight uint16, state dataplane.EndpointState, more ...dataplane.Endpoint) *dataplane.Service {
		list := append(slices.Clone(instances), more...)
		list[0].Weight, list[1].State = weight, state
		return &dataplane.Service{Key: dataplane.Key{Namespace: "default", Name: "web"}, Endpoints: dataplane.NewEndpoints(list...)}
	}
	feed.next(func(e *dataplane.Editor) { e.Set(own(1, dataplane.Ready)) })
	a.eventually(20*time.Second, "both instances answer", (&web{agent: a}).reaches("web-0", "web-1"))

	sockets := newCrowd(t, a.node, a.url(proxyPort), scale.N(1000)/5) // 200
	updates, begun := scale.N(1000), time.Now()
	tick := time.NewTicker(10 * time.Millisecond) // 1,000 in 10 s
	defer tick.Stop()
	other := &dataplane.Service{Key: dataplane.Key{Namespace: "default", Name: "other"}, Endpoints: dataplane.NewEndpoints(instances...)}
	extra := dataplane.Endpoint{ID: 9, Name: "web-9", Weight: 0, Addr: netip.MustParseAddrPort("127.0.0.1:1")}
	for i := range updates {
		<-tick.C
		feed.next(func(e *dataplane.Editor) {
			switch i % 5 {
			case 0:
				e.Set(own(uint16(2+i%7), dataplane.Ready))
			case 1:
				e.Set(other)
			case 2:
				e.Set(own(1, dataplane.Suspect))
			case 3:
				e.Delete(other.Key)
			case 4:
				e.Set(own(1, dataplane.Ready, extra))
			}
		})
	}
	took := time.Since(begun)
	sockets.complete()
	t.Logf("%d snapshots in %v; %d WebSockets echoed %d messages", updates, took.Round(time.Millisecond), len(sockets.sockets), sockets.echoed.Load())
	if took > scale.Bound(20*time.Second, time.Minute) {
		t.Errorf("the snapshots took %v", took)
	}
	lives(t, proxy)
}

// feed is the part of an agent that tells a data plane what should be.
type feed struct {
	t       *testing.T
	client  pb.DataPlaneProviderClient
	encoder *transfer.Encoder
	now     *dataplane.Snapshot
}

// newFeed begins a session with the data plane at a socket, which it configures
// with nothing.
func newFeed(t *testing.T, at string) *feed {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+at, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &feed{t: t, client: pb.NewDataPlaneProviderClient(conn), encoder: transfer.NewEncoder(), now: &dataplane.Snapshot{
		Session: dataplane.Session{AgentID: "test", BootEpoch: 1}, Completeness: dataplane.Alone,
	}}
}

// next makes one more generation, and waits until it is in force.
func (f *feed) next(change func(*dataplane.Editor)) {
	f.t.Helper()
	edit := f.now.Edit()
	change(edit)
	next := edit.Done()
	next.Generation = f.now.Generation + 1
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	stream, err := f.client.Reconcile(ctx, grpc.WaitForReady(true))
	if err != nil {
		f.t.Fatal(err)
	}
	changes := f.encoder.Delta(dataplane.Diff(f.now, next, nil))
	if f.now.Generation == 0 {
		changes = f.encoder.Snapshot(next)
	}
	err = stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: transfer.Begin(next, f.now.Generation, false)}})
	for change := range changes {
		err = errors.Join(err, stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: change}}))
	}
	err = errors.Join(err, stream.Send(&pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}}))
	response, last := stream.CloseAndRecv()
	if err = errors.Join(err, last); err != nil {
		f.t.Fatalf("generation %d: %v", next.Generation, err)
	}
	if _, result := transfer.DecodeResult(response); len(result.Statuses) > 0 {
		f.t.Fatalf("generation %d: %+v", next.Generation, result.Statuses)
	}
	f.now = next
}

// TestL7SocketsOverRegistrations: the same through an agent, by its API: what
// clients register reaches the proxy, and WebSockets do not see it.
func TestL7SocketsOverRegistrations(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 1)
	one := cluster.hosts[0]
	cluster.start()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	api, err := client.Dial(ctx, one.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	at := one.socketOf(one.ready("l7", 1))
	before, err := planeAt(at)
	if err != nil {
		t.Fatal(err)
	}
	sockets := newCrowd(t, one.node, one.url(proxyPort), scale.N(200))
	updates := scale.N(500)
	for i := range updates {
		name := fmt.Sprint("other-", i/4%7)
		if i%4 == 3 {
			if _, err := api.Deregister(ctx, name, ""); err != nil {
				t.Fatal(err)
			}
			continue
		}
		r, err := api.Register(ctx, "the test", text(t, object{
			"name": name, "port": 80, "instances": []object{{"id": "a", "address": one.url(instancePort), "weight": 1 + i%4}},
		}), false)
		if err != nil || !r.Changed {
			t.Fatalf("register: %+v, %v", r, err)
		}
	}
	sockets.complete()
	after, err := planeAt(at)
	if err != nil {
		t.Fatal(err)
	}
	snapshots := after.Generation - before.Generation
	t.Logf("%d registrations were %d snapshots; %d WebSockets echoed %d messages", updates, snapshots, len(sockets.sockets), sockets.echoed.Load())
	if snapshots < uint64(updates)/10 {
		t.Errorf("%d registrations were %d snapshots only", updates, snapshots)
	}
}
