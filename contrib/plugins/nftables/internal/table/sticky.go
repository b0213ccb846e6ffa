package table

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
)

// An entry with affinity has chains of its own: sticky-TAG looks for the client in the
// set of each endpoint, and else chooses one; sticky-TAG-ID writes the client into
// the endpoint's set, and leads there. The set goes with the endpoint.

func stickyTag(at plan.Place) string {
	sum := sha256.Sum256(append(placeKey(at), byte(at.Side)))
	return hex.EncodeToString(sum[:6])
}

func stickyChain(at plan.Place) string { return "sticky-" + stickyTag(at) }

func endChain(at plan.Place, id uint64) string {
	return fmt.Sprintf("sticky-%s-%016x", stickyTag(at), id)
}

func clientSet(at plan.Place, id uint64) string {
	return fmt.Sprintf("clients-%s-%016x", stickyTag(at), id)
}

// maxClients bounds how many clients are remembered of one endpoint.
const maxClients = 1 << 16

func (f family) clients(t *nftables.Table, at plan.Place, id uint64) *nftables.Set {
	return &nftables.Set{Table: t, Name: clientSet(at, id), KeyType: f.addr, Dynamic: true, HasTimeout: true, Size: maxClients}
}

// sticky is what an entry has; nil if it has none.
func sticky(e *plan.Entry) *plan.Entry {
	if e == nil || e.Sticky == 0 || len(e.Slots) == 0 {
		return nil
	}
	return e
}

// before makes what the frontend of an entry goes to.
func (f family) stickyBefore(c *nftables.Conn, t *nftables.Table, at plan.Place, was, is *plan.Entry) error {
	if is == nil {
		return nil
	}
	for _, ep := range is.Endpoints {
		had, there := plan.Endpoint{}, false
		if was != nil {
			had, there = was.Endpoint(ep.ID)
		}
		if there && had == ep && was.Sticky == is.Sticky {
			continue
		}
		if !there {
			if err := c.AddSet(f.clients(t, at, ep.ID), nil); err != nil {
				return err
			}
		}
		end := &nftables.Chain{Table: t, Name: endChain(at, ep.ID)}
		c.AddChain(end)
		c.FlushChain(end) // a process that was killed may have left one
		for _, exprs := range f.end(at, ep, is.Sticky) {
			c.AddRule(&nftables.Rule{Table: t, Chain: end, Exprs: exprs})
		}
	}
	main := &nftables.Chain{Table: t, Name: stickyChain(at)}
	c.AddChain(main)
	c.FlushChain(main)
	for _, ep := range is.Endpoints {
		c.AddRule(&nftables.Rule{Table: t, Chain: main, Exprs: []expr.Any{
			f.load(0, f.srcAt),
			&expr.Lookup{SetName: clientSet(at, ep.ID), SourceRegister: r(0)},
			&expr.Verdict{Kind: expr.VerdictGoto, Chain: endChain(at, ep.ID)},
		}})
	}
	choice := &nftables.Set{Table: t, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeInteger, DataType: nftables.TypeVerdict}
	var list []nftables.SetElement
	for i, id := range is.Slots {
		list = append(list, nftables.SetElement{
			Key: binary.NativeEndian.AppendUint32(nil, uint32(i)), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: endChain(at, id)},
		})
	}
	if err := c.AddSet(choice, list); err != nil {
		return err
	}
	c.AddRule(&nftables.Rule{Table: t, Chain: main, Exprs: []expr.Any{
		&expr.Numgen{Register: r(0), Modulus: uint32(len(is.Slots)), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SetName: choice.Name, SetID: choice.ID, SourceRegister: r(0), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true},
	}})
	return nil
}

// end are the rules of an endpoint's chain. The first never keeps a packet from the
// others: a client that does not fit is led all the same.
func (f family) end(at plan.Place, ep plan.Endpoint, ttl time.Duration) [][]expr.Any {
	return [][]expr.Any{
		{
			f.load(0, f.srcAt),
			&expr.Dynset{SrcRegKey: r(0), SetName: clientSet(at, ep.ID), Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: ttl},
		},
		f.mark(),
		{
			&expr.Counter{},
			&expr.Immediate{Register: r(0), Data: ep.Addr.Addr().AsSlice()},
			&expr.Immediate{Register: r(f.words), Data: []byte{byte(ep.Addr.Port() >> 8), byte(ep.Addr.Port())}},
			f.dnat(),
		},
	}
}

// stickyAfter removes what nothing goes to any more.
func (f family) stickyAfter(c *nftables.Conn, t *nftables.Table, at plan.Place, was, is *plan.Entry) {
	if was == nil {
		return
	}
	if is == nil {
		c.DelChain(&nftables.Chain{Table: t, Name: stickyChain(at)})
	}
	for _, ep := range was.Endpoints {
		if is != nil {
			if _, stays := is.Endpoint(ep.ID); stays {
				continue
			}
		}
		c.DelChain(&nftables.Chain{Table: t, Name: endChain(at, ep.ID)})
		c.DelSet(f.clients(t, at, ep.ID))
	}
}

// orphans are chains and sets of entries with affinity that are no more, left by a
// process that was killed between two transactions.
type orphans struct{ chains, sets []string }

func (t *Tables) findOrphans(f family, h *handles) {
	used := make(map[string]bool)
	for at, e := range t.sticky {
		used[stickyChain(at)] = true
		for _, ep := range e.Endpoints {
			used[endChain(at, ep.ID)], used[clientSet(at, ep.ID)] = true, true
		}
	}
	var o orphans
	for name := range h.chains {
		if strings.HasPrefix(name, "sticky-") && !used[name] {
			o.chains = append(o.chains, name)
		}
	}
	for name := range h.sets {
		if strings.HasPrefix(name, "clients-") && !used[name] {
			o.sets = append(o.sets, name)
		}
	}
	t.orphans[f.v6] = o
}

// dropOrphans removes them. What one of them goes to has to be left by it first.
func (t *Tables) dropOrphans(c *nftables.Conn) error {
	for _, f := range t.families {
		for _, name := range t.orphans[f.v6].chains {
			c.FlushChain(&nftables.Chain{Table: t.table(f), Name: name})
		}
	}
	if err := c.Flush(); err != nil {
		return err
	}
	for _, f := range t.families {
		for _, name := range t.orphans[f.v6].chains {
			c.DelChain(&nftables.Chain{Table: t.table(f), Name: name})
		}
		for _, name := range t.orphans[f.v6].sets {
			c.DelSet(&nftables.Set{Table: t.table(f), Name: name})
		}
	}
	clear(t.orphans)
	return c.Flush()
}
