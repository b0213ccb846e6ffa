package membership_test

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// TestLyingMembersDoNotSpoilADefinition puts an endpoint between: node 3 hears
// of a record from its owner, and every member that it may ask but one answers
// with something else.
func TestLyingMembersDoNotSpoilADefinition(t *testing.T) {
	definition := bytes.Repeat([]byte("definition "), 10_000)
	hash := wire.HashOf(definition)
	codec := wire.NewCodec("test")
	begin := func() []byte { return codec.Begin(nil, 0xbad, 1, 0) }
	part := func(total, offset uint32, data []byte) []byte {
		return frame(codec.Seal(wire.AppendPart(begin(), hash, total, offset, data)))
	}
	whole := uint32(len(definition))
	for name, answer := range map[string][][]byte{
		"nothing":          {},
		"noise":            {frame([]byte("noise, and no packet at all"))},
		"length too large": {{0xff, 0xff, 0xff, 0xff}},
		"no part":          {frame(codec.Seal(wire.AppendAck(begin(), 1)))},
		"other bytes":      {part(5, 0, []byte("other"))},
		"gap":              {part(whole, 0, definition[:100]), part(whole, 200, definition[200:300])},
		"above total":      {part(10, 0, definition[:20])},
		"cut":              {part(whole, 0, definition[:30000])},
		"empty part":       {part(whole, 0, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *cluster) {
				owner := c.start(1)
				lied := 0
				c.start(2, func(cfg *membership.Config) {
					cfg.Transport = &liar{Transport: cfg.Transport, hash: hash, answer: answer, lied: &lied}
				})
				n := c.start(3)
				c.await(3*time.Second, "3 nodes", func() bool { return n.Snapshot().Live() == 3 && c.nodes[1].Snapshot().Live() == 3 })
				if err := owner.SetRecord(definition, nil); err != nil {
					t.Fatal(err)
				}
				has := func(n *node) func() bool {
					return func() bool {
						m, _ := n.Snapshot().Find(owner.id())
						return bytes.Equal(m.Definition, definition)
					}
				}
				// Node 2 pulls through its own lies: they hit every stream
				// that it opens for this hash, twice.
				c.await(20*time.Second, "node 2 has the definition in the end", has(c.nodes[1]))
				c.await(5*time.Second, "node 3 has it too", has(n))
				if lied != 2 {
					t.Fatalf("lied %d times, want 2", lied)
				}
				if got := c.nodes[1].metric(t, "pulls_total", "failed") + c.nodes[1].metric(t, "pulls_total", "not-there"); got < 2 {
					t.Errorf("%v pulls went wrong, want the 2 lies at least", got)
				}
			})
		})
	}
}

// frame puts the length in front of a packet.
func frame(p []byte) []byte {
	return append([]byte{byte(len(p) >> 24), byte(len(p) >> 16), byte(len(p) >> 8), byte(len(p))}, p...)
}

// liar answers the first two pulls of a hash by itself.
type liar struct {
	membership.Transport
	hash   wire.Hash
	answer [][]byte
	lied   *int
}

func (l *liar) DialStream(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	conn, err := l.Transport.DialStream(ctx, to)
	if err != nil {
		return nil, err
	}
	return &lyingConn{Conn: conn, liar: l}, nil
}

// lyingConn turns to lies when it sees the pull.
type lyingConn struct {
	net.Conn
	liar *liar
	lies *bytes.Reader
}

func (c *lyingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.liar.hash[:]) && *c.liar.lied < 2 {
		*c.liar.lied++
		c.lies = bytes.NewReader(bytes.Join(c.liar.answer, nil))
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *lyingConn) Read(b []byte) (int, error) {
	if c.lies != nil {
		return c.lies.Read(b)
	}
	return c.Conn.Read(b)
}
