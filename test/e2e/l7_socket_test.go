package e2e

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
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

// TestL7SocketsOverUpdates: WebSockets stay open and echo while the proxy is
// given one snapshot after the other: services and instances come and go, and
// the weights of their own service change.
func TestL7SocketsOverUpdates(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 1)
	one := cluster.hosts[0]
	cluster.start()
	for i := range 2 {
		one.runs(instancePort+1+i, fmt.Sprint("flip-", i))
	}
	// The weights that change are those of instances beside the configured one,
	// so their service is another: this one, with the host web.
	flip := func(weight int) string {
		return text(t, object{"name": "flip", "port": 80, "hosts": []string{"flip.test"}, "instances": []object{
			{"id": "a", "address": one.url(instancePort + 1), "weight": 1 + weight},
			{"id": "b", "address": one.url(instancePort + 2), "weight": 5 - weight},
		}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	api, err := client.Dial(ctx, one.socket())
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	register := func(definition string) {
		t.Helper()
		r, err := api.Register(ctx, "the test", definition, false)
		if err != nil || !r.Changed {
			t.Fatalf("register %s: %+v, %v", definition, r, err)
		}
	}
	register(flip(0))
	cluster.eventually(20*time.Second, "the proxy has the second service", func() error {
		c := newHTTPConn(one.node, one.url(proxyPort))
		defer c.close()
		code, body, err := c.do("GET / HTTP/1.1\r\nHost: flip.test\r\n\r\n", patience)
		if err == nil && code != 200 {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})

	sockets := make([]*socket, scale.N(1000)/5) // 200
	for i := range sockets {
		if sockets[i], err = openSocket(one.node, one.url(proxyPort)); err != nil {
			t.Fatal(err)
		}
		defer sockets[i].close()
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	var echoes atomic.Int64
	for i, s := range sockets {
		all.Go(func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for {
				if err := s.echoes(); err != nil {
					t.Errorf("WebSocket %d dropped after %d messages: %v", i, s.sent, err)
					return
				}
				echoes.Add(1)
				select {
				case <-over:
					return
				case <-tick.C:
				}
			}
		})
	}

	socketOf := one.socketOf(one.ready("l7", 1))
	before, err := planeAt(socketOf)
	if err != nil {
		t.Fatal(err)
	}
	updates, begun := scale.N(1000), time.Now()
	tick := time.NewTicker(10 * time.Millisecond) // 1,000 in 10 s
	defer tick.Stop()
	for i := range updates {
		<-tick.C
		switch i % 4 {
		case 0:
			register(flip(1 + i/4%4))
		case 1:
			register(text(t, object{"name": fmt.Sprint("other-", i/4%7), "port": 80, "instances": []object{{"id": fmt.Sprint(i), "address": "127.0.0.1:1"}}}))
		case 2:
			register(text(t, object{"name": "flip", "port": 80, "hosts": []string{"flip.test"}, "instances": []object{{"id": "c", "address": "127.0.0.1:1", "weight": 0}}}))
		case 3:
			if _, err := api.Deregister(ctx, "flip", "c"); err != nil {
				t.Fatal(err)
			}
		}
	}
	took := time.Since(begun)
	after, err := planeAt(socketOf)
	if err != nil {
		t.Fatal(err)
	}
	close(over)
	all.Wait()
	for i, s := range sockets { // and once more, when all is over
		if err := s.echoes(); err != nil {
			t.Errorf("WebSocket %d, in the end: %v", i, err)
		}
	}
	snapshots := after.Generation - before.Generation
	t.Logf("%d updates in %v were %d snapshots; %d WebSockets echoed %d messages", updates, took.Round(time.Millisecond), snapshots, len(sockets), echoes.Load())
	if snapshots < uint64(updates)/2 {
		t.Errorf("%d updates were %d snapshots only", updates, snapshots)
	}
}
