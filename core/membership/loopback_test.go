package membership_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/scale"
	"github.com/fairlead/fairlead/test/transcript"
)

// startReal runs a node on real sockets of the loopback device.
func startReal(t *testing.T, edit func(*membership.Config)) *node {
	t.Helper()
	n := &node{log: &transcript.Buffer{}, metrics: prometheus.NewPedanticRegistry()}
	n.cfg = membership.Config{
		Name: "real", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Cluster: "test", Swim: swim.DefaultLocal(),
		Log: slog.New(slog.NewTextHandler(n.log, nil)), Metrics: n.metrics,
	}
	edit(&n.cfg)
	var err error
	if n.Membership, err = membership.Start(n.cfg); err != nil {
		t.Fatalf("start: %v", err)
	}
	n.addr = n.LocalAddr()
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close %s: %v", n.cfg.Name, err)
		}
	})
	return n
}

func TestRealSockets(t *testing.T) {
	seed := startReal(t, func(c *membership.Config) { c.Name = "a" })
	join := []string{seed.addr.String()}
	b := startReal(t, func(c *membership.Config) { c.Name, c.Join = "b", join })
	c := startReal(t, func(c *membership.Config) { c.Name, c.Join = "c", join })
	all := []*node{seed, b, c}
	await.For(t, "3 nodes see each other", func() bool {
		return seed.Snapshot().Live() == 3 && b.Snapshot().Live() == 3 && c.Snapshot().Live() == 3
	})
	definition := bytes.Repeat([]byte("x"), 200_000)
	if err := b.SetRecord(definition, []byte{1}); err != nil {
		t.Fatal(err)
	}
	await.For(t, "all have the definition", func() bool {
		for _, n := range all {
			if m, _ := n.Snapshot().Find(b.id()); !bytes.Equal(m.Definition, definition) {
				return false
			}
		}
		return true
	})
	if err := c.Leave(t.Context()); err != nil {
		t.Errorf("leave: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	await.For(t, "c to be seen as left", func() bool { // what it sent last may still be in a queue
		m, _ := seed.Snapshot().Find(c.id())
		return m.Value.State == model.StateLeft
	})
	for _, socket := range []string{"udp", "tcp"} {
		for _, direction := range []string{"in", "out"} {
			if seed.metric(t, "bytes_total", socket, direction) == 0 {
				t.Errorf("no bytes counted %s by %s", direction, socket)
			}
		}
	}
}

func TestPortInUseAndDirectoryInUseAreClearErrors(t *testing.T) {
	dir := t.TempDir()
	n := startReal(t, func(c *membership.Config) { c.DataDir = dir })
	cfg := n.cfg
	cfg.Metrics, cfg.DataDir, cfg.Bind = nil, "", n.addr
	if _, err := membership.Start(cfg); err == nil || !strings.Contains(err.Error(), n.addr.String()) || !strings.Contains(err.Error(), "gossip.bind") {
		t.Errorf("port in use: %v", err)
	}
	cfg = n.cfg
	cfg.Metrics = nil
	if _, err := membership.Start(cfg); !errors.Is(err, membership.ErrDataDir) || !strings.Contains(err.Error(), "in use by pid") {
		t.Errorf("directory in use: %v", err)
	}
	cfg.DataDir, cfg.Metrics = "", n.metrics
	if _, err := membership.Start(cfg); err == nil || !strings.Contains(err.Error(), "metrics") {
		t.Errorf("metrics registered twice: %v", err)
	}
}

func TestStartRefusesBadConfig(t *testing.T) {
	good := membership.Config{Name: "a", Bind: netip.MustParseAddrPort("127.0.0.1:0"), Cluster: "c", Swim: swim.DefaultLocal()}
	for what, edit := range map[string]func(*membership.Config){
		"Name":      func(c *membership.Config) { c.Name = "" },
		"name":      func(c *membership.Config) { c.Name = strings.Repeat("x", wire.MaxNameBytes+1) },
		"Bind":      func(c *membership.Config) { c.Bind = netip.AddrPort{} },
		"Cluster":   func(c *membership.Config) { c.Cluster = "" },
		"is \"c\"":  func(c *membership.Config) { c.Swim.Cluster = "d" },
		"\"x:0\"":   func(c *membership.Config) { c.Join = []string{"x:0"} },
		"Helpers":   func(c *membership.Config) { c.Swim.Helpers = -1 },
		"advertise": func(c *membership.Config) { c.Advertise = netip.MustParseAddrPort("224.0.0.1:1") },
	} {
		cfg := good
		edit(&cfg)
		m, err := membership.Start(cfg)
		if err == nil {
			t.Errorf("%s: accepted", what)
			_ = m.Close()
			continue
		}
		if !strings.Contains(err.Error(), what) {
			t.Errorf("%s: not named by %q", what, err)
		}
	}
}

// unprobed has a node probe nobody: on a machine that runs something else meanwhile,
// the others would be suspected for a moment, which is an event.
func unprobed(c *membership.Config) { c.Swim.ProbePeriod = time.Hour }

// abuse is what a stranger, or a broken peer, may send.
type abuse struct {
	rng   *rand.Rand
	valid [][]byte // packets of this cluster to mutate
}

func newAbuse(target *node) *abuse {
	a := &abuse{rng: rand.New(rand.NewPCG(20, 26))}
	codec := wire.NewCodec("test")
	begin := func() []byte { return codec.Begin(nil, 0xbad, 1, 0) }
	a.valid = [][]byte{
		codec.Seal(wire.AppendPing(begin(), 7, target.id())),
		codec.Seal(wire.AppendAck(begin(), 7)),
		codec.Seal(wire.AppendPingReq(begin(), 7, target.id(), 100)),
		codec.Seal(wire.AppendPull(begin(), wire.Hash{1})),
		codec.Seal(wire.AppendPart(begin(), wire.Hash{1}, 100, 0, []byte("hello"))),
		codec.Seal(wire.AppendExchange(begin(), false, true)),
		codec.Seal(wire.AppendRecord(begin(), target.id(), 9, 9, []byte("record"))),
	}
	return a
}

// packet returns noise, or a valid packet that was damaged, cut, stretched, or
// is of another cluster.
func (a *abuse) packet() []byte {
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(a.rng.Uint32())
		}
		return b
	}
	b := append([]byte(nil), a.valid[a.rng.IntN(len(a.valid))]...)
	switch a.rng.IntN(6) {
	case 0:
		return noise(a.rng.IntN(1500))
	case 1:
		return noise(1500 + a.rng.IntN(60_000))
	case 2:
		return b[:a.rng.IntN(len(b))]
	case 3:
		return append(b, noise(1+a.rng.IntN(100))...)
	case 4:
		return wire.NewCodec("other").Seal(b[:len(b)-8])
	}
	for range 1 + a.rng.IntN(4) {
		b[a.rng.IntN(len(b))] ^= byte(1 + a.rng.IntN(255))
	}
	return b
}

func TestAbuseIsCountedAndChangesNothing(t *testing.T) {
	n := startReal(t, func(c *membership.Config) {
		unprobed(c)
		c.Swim.StreamTimeout = 2 * time.Second
		c.Log = nil
	})
	peer := startReal(t, func(c *membership.Config) {
		unprobed(c)
		c.Name, c.Join = "peer", []string{n.addr.String()}
	})
	await.For(t, "two nodes", func() bool { return n.Snapshot().Live() == 2 && peer.Snapshot().Live() == 2 })
	before := n.Snapshot()

	a := newAbuse(n)
	t.Run("packets", func(t *testing.T) {
		conn, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(n.addr))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		packets := make([][]byte, scale.N(20_000))
		for i := range packets {
			packets[i] = a.packet()
		}
		looks := uint64(0)
		accounted := func() float64 {
			looks++
			return n.metric(t, "rejected_total") + n.metric(t, "dropped_total", "queue-full")
		}
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		for range 10 {
			accounted()
		}
		runtime.ReadMemStats(&is)
		ofLook := (is.TotalAlloc - was.TotalAlloc) / looks // the slower the machine, the more of them
		looks, was = 0, is
		waiting := 0 // bytes that the socket may hold
		for i, p := range packets {
			const socketBytes = 128 << 10 // less than any kernel's default; what does not fit is lost
			if waiting += len(p) + 1024; waiting > socketBytes {
				await.For(t, "packets so far are accounted for", func() bool { return accounted() >= float64(i) })
				waiting = len(p) + 1024
			}
			if _, err := conn.Write(p); err != nil {
				t.Fatal(err)
			}
		}
		await.For(t, "all packets are accounted for", func() bool { return accounted() >= float64(len(packets)) })
		runtime.ReadMemStats(&is)
		taken := is.TotalAlloc - was.TotalAlloc
		each := (taken - min(taken, looks*ofLook)) / uint64(len(packets))
		t.Logf("%d packets: %v rejected, %v dropped, %d bytes allocated for each",
			len(packets), n.metric(t, "rejected_total"), n.metric(t, "dropped_total", "queue-full"), each)
		if each > 64<<10 {
			t.Errorf("%d bytes allocated for each packet, want at most 64 KiB", each)
		}
		for _, reason := range []string{"checksum", "version", "malformed"} {
			if n.metric(t, "rejected_total", reason) == 0 {
				t.Errorf("no packet was rejected as %s: the abuse misses a case", reason)
			}
		}
	})

	t.Run("streams", func(t *testing.T) {
		ended := func() float64 { return n.metric(t, "streams_total", "in") }
		base, streams := ended(), scale.N(200)
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		var idle []net.Conn
		for i := range streams {
			conn, err := net.Dial("tcp4", n.addr.String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			p := a.packet()
			switch i % 5 {
			case 0: // a frame
				_, _ = conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...)) // the node may close first
			case 1: // noise without frames
				_, _ = conn.Write(p)
			case 2: // a length, and never its bytes
				_, _ = conn.Write(binary.BigEndian.AppendUint32(nil, uint32(a.rng.IntN(2*wire.MaxFrameBytes))))
			case 3: // a length beyond all bounds
				_, _ = conn.Write([]byte{0xff, 0xff, 0xff, 0xff})
			case 4: // nothing
			}
			idle = append(idle, conn)
		}
		// The node ends every stream by itself.
		for _, conn := range idle {
			if err := conn.SetReadDeadline(time.Now().Add(await.Patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, net.ErrClosed) || isTimeout(err) {
				t.Errorf("the node keeps a stream open: %v", err)
			}
		}
		runtime.ReadMemStats(&is)
		await.For(t, "all streams are counted", func() bool { return ended() >= base+float64(streams) })
		each := (is.TotalAlloc - was.TotalAlloc) / uint64(streams)
		t.Logf("%d streams, %d bytes allocated for each", streams, each)
		if each > 64<<10 {
			t.Errorf("%d bytes allocated for each stream, want at most 64 KiB", each)
		}
	})

	after := n.Snapshot()
	if after.Seq != before.Seq || len(after.Members) != 2 || after.Live() != 2 {
		for _, e := range n.history(t) {
			t.Logf("%v of %s %v", e.Kind, e.Member.Name, e.Member.Value)
		}
		t.Errorf("the abuse changed the table: event %d → %d, members %+v", before.Seq, after.Seq, after.Members)
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

func TestIdleStreamsDoNotKeepOthersOut(t *testing.T) {
	n := startReal(t, func(c *membership.Config) { c.Name = "a" })
	for range 100 { // more than are served at a time
		conn, err := net.Dial("tcp4", n.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	b := startReal(t, func(c *membership.Config) { c.Name, c.Join = "b", []string{n.addr.String()} })
	await.Within(t, scale.Bound(time.Second, await.Patience), "a node joins although 100 streams say nothing", func() bool { return b.Snapshot().Live() == 2 })
	// Also where a node that keeps them would have time to lose patience with them.
	if refused := n.metric(t, "streams_total", "refused-here"); refused != 0 {
		t.Errorf("%v streams were refused for others that say nothing", refused)
	}
}
