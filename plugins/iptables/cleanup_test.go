package iptables

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
	"github.com/fairlead/fairlead/test/netns"
)

// results counts what became of what Cleanup found.
func results(items []dataplane.CleanupItem) map[dataplane.CleanupResult]int {
	n := make(map[dataplane.CleanupResult]int)
	for _, i := range items {
		n[i.Result]++
	}
	return n
}

// TestCleanupOfOthers: with no state and no configuration a new process removes what
// one instance left, tables and routes, and nothing of another; and all of it if told
// so.
func TestCleanupOfOthers(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		endpoint := listenTCP(t, "127.0.0.1:0", "a")
		one, two := newWorld(t, v), newWorld(t, v)
		two.config.InstanceID += ".two"
		two.restart()
		one.good(one.apply(service("a", vip("10.200.8.1:80", dataplane.TCP), endpoint)))
		two.good(two.apply(service("b", vip("10.200.8.2:80", dataplane.TCP), endpoint)))
		for _, w := range []*world{one, two} {
			if err := w.provider.Shutdown(t.Context(), dataplane.ShutdownKeep); err != nil {
				t.Fatal(err)
			}
		}
		fresh := New("test")
		clean := func(what dataplane.CleanupOptions) map[dataplane.CleanupResult]int {
			t.Helper()
			items, err := fresh.Cleanup(t.Context(), what)
			if err != nil {
				t.Fatal(err)
			}
			n := results(items)
			if n[dataplane.Failed] > 0 {
				t.Fatalf("%+v", items)
			}
			return n
		}
		dry := clean(dataplane.CleanupOptions{InstanceID: one.config.InstanceID, DryRun: true})
		if dry[dataplane.WouldRemove] == 0 || dry[dataplane.Kept] == 0 || dry[dataplane.Removed] > 0 {
			t.Errorf("a dry run: %v", dry)
		}
		answers(t, "10.200.8.1:80", "a")
		if n := clean(dataplane.CleanupOptions{InstanceID: one.config.InstanceID}); n[dataplane.Removed] != dry[dataplane.WouldRemove] {
			t.Errorf("a dry run: %v, the run: %v", dry, n)
		}
		answers(t, "10.200.8.2:80", "a")
		if c, err := net.DialTimeout("tcp", "10.200.8.1:80", 200*time.Millisecond); err == nil {
			c.Close()
			t.Error("what was removed answers")
		}
		clean(dataplane.CleanupOptions{AllKnown: true})
		if n := clean(dataplane.CleanupOptions{AllKnown: true}); len(n) > 0 {
			t.Errorf("after all was removed there is %v", n)
		}
	})
}

// TestLinger: taken leave of with Linger the connections that were led go on, by one
// rule that leads nothing; when they are over that goes as well, also by a process
// that knows nothing of them.
func TestLinger(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w := newWorld(t, v)
		echo, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer echo.Close()
		go func() {
			for {
				c, err := echo.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = io.Copy(c, c); c.Close() }()
			}
		}()
		w.good(w.apply(service("a", vip("10.200.9.1:80", dataplane.TCP), echo.Addr().(*net.TCPAddr).AddrPort())))
		c, err := net.Dial("tcp", "10.200.9.1:80")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		talks := func() {
			t.Helper()
			_ = c.SetDeadline(time.Now().Add(5 * time.Second))
			b := make([]byte, 5)
			if _, err := c.Write([]byte("hello")); err != nil {
				t.Errorf("an open connection: %v", err)
			} else if _, err := io.ReadFull(c, b); err != nil {
				t.Errorf("an open connection: %v", err)
			}
		}
		talks()
		linger := func(p *Provider) map[dataplane.CleanupResult]int {
			t.Helper()
			items, err := p.Cleanup(context.Background(), dataplane.CleanupOptions{InstanceID: w.config.InstanceID, Linger: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range items {
				if i.Result == dataplane.Pending && !strings.Contains(i.Message, "conntrack") {
					t.Errorf("pending for no reason: %+v", i)
				}
			}
			return results(items)
		}
		if n := linger(w.provider); n[dataplane.Pending] != 3 || n[dataplane.Removed] == 0 /* the rule, a route, and the rule to it */ {
			t.Errorf("with an open connection: %v", n)
		}
		talks()
		if text := saved(t, v)[rules.IPv4]; strings.Count(text, "\n-A") != 1 || strings.Contains(text, ourChains) {
			t.Errorf("what lingers:\n%s", text)
		}
		if n := linger(New("test")); n[dataplane.Pending] != 3 || n[dataplane.Removed] > 0 {
			t.Errorf("with an open connection, asked again: %v", n)
		}
		talks()
		command(t, "conntrack", "-D", "-p", "tcp", "-d", "10.200.9.1")
		if n := linger(w.provider); n[dataplane.Pending] != 0 || n[dataplane.Removed] != 3 {
			t.Errorf("when the connection is over: %v", n)
		}
		netns.Eventually(t, time.Second, func() bool { return !ours(saved(t, v)[rules.IPv4]) }, "nothing to be left")
	})
}
