package iptables

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
	"github.com/fairlead/fairlead/test/await"
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
			for _, i := range items {
				if !what.AllKnown && (i.InstanceID == what.InstanceID) == (i.Result == dataplane.Kept) {
					t.Errorf("whose it is: %+v", i)
				}
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

// listenEcho returns what it is sent.
func listenEcho(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); c.Close() }()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// held is an open connection to an echo.
type held struct {
	net.Conn
	t *testing.T
}

func holdsOne(t *testing.T, addr string) held {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return held{c, t}
}

func (h held) talks() {
	h.t.Helper()
	_ = h.SetDeadline(time.Now().Add(await.Patience))
	b := make([]byte, 5)
	if _, err := h.Write([]byte("hello")); err != nil {
		h.t.Errorf("an open connection: %v", err)
	} else if _, err := io.ReadFull(h, b); err != nil {
		h.t.Errorf("an open connection: %v", err)
	}
}

// TestLinger: taken leave of with Linger the connections that were led go on, by one
// rule that leads nothing; when they are over that goes as well, also by a process
// that knows nothing of them.
func TestLinger(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w := newWorld(t, v)
		w.good(w.apply(service("a", vip("10.200.9.1:80", dataplane.TCP), listenEcho(t))))
		talks := holdsOne(t, "10.200.9.1:80").talks
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
		netns.Eventually(t, await.Patience, func() bool { return !ours(saved(t, v)[rules.IPv4]) }, "nothing to be left")
	})
}

// TestLingerBesideAnother: what is waited for are the connections from before, not those
// that the data plane in its place leads, nor those that are over. That the instance is
// back and leaves once more begins anew.
func TestLingerBesideAnother(t *testing.T) {
	eachVariant(t, func(t *testing.T, v host.Variant) {
		w, successor := newWorld(t, v), newWorld(t, v)
		successor.config.InstanceID += ".successor"
		successor.restart()
		web := service("a", vip("10.200.9.2:80", dataplane.TCP), listenEcho(t))
		pending := func() string {
			t.Helper()
			items, err := w.provider.Cleanup(t.Context(), dataplane.CleanupOptions{InstanceID: w.config.InstanceID, Linger: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range items {
				if i.Result == dataplane.Pending {
					return i.Message
				}
			}
			return ""
		}
		for range 2 {
			w.good(w.apply(web))
			before := holdsOne(t, "10.200.9.2:80")
			for range 20 {
				c := holdsOne(t, "10.200.9.2:80")
				c.talks()
				c.Close()
			}
			successor.good(successor.apply(web))
			netns.Eventually(t, await.Patience, func() bool { return strings.HasPrefix(pending(), "1 ") }, "the leave to wait for the one connection that is open")
			after := holdsOne(t, "10.200.9.2:80")
			after.talks()
			before.talks()
			if says := pending(); !strings.HasPrefix(says, "1 ") {
				t.Errorf("beside a connection of the successor %q is waited for", says)
			}
			before.Close()
			netns.Eventually(t, await.Patience, func() bool { return pending() == "" }, "the leave to end with the connection from before")
			after.talks()
			if text := saved(t, v)[rules.IPv4]; strings.Contains(text, rules.Tag(w.config.InstanceID)) {
				t.Errorf("after the leave there is\n%s", text)
			}
			after.Close()
		}
	})
}
