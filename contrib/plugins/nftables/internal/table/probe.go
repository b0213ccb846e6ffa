package table

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/google/nftables"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
)

// Trial is one thing that the kernel has to be able to do.
type Trial struct {
	ID     string
	IPv6   bool
	Good   string // what it means that it can
	Remedy string
	add    func(f family, t *nftables.Table, c *nftables.Conn)
}

// Trials are all, in an order in which each needs those before it.
func Trials() []Trial {
	everything := func(f family, t *nftables.Table, c *nftables.Conn) {
		addPicks(f, t, c)
		addSticky(f, t, c)
		for _, ch := range f.chains(t, false) {
			addChain(c, ch)
		}
	}
	base := func(hook *nftables.ChainHook, priority *nftables.ChainPriority) func(family, *nftables.Table, *nftables.Conn) {
		return func(_ family, t *nftables.Table, c *nftables.Conn) {
			c.AddChain(&nftables.Chain{Table: t, Name: "base", Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
		}
	}
	const newer = "use a kernel from 5.13 on with "
	return []Trial{
		{ID: "nf-tables", Good: "tables can be made", Remedy: newer + "CONFIG_NF_TABLES and CONFIG_NF_TABLES_IPV4, or load module nf_tables", add: func(family, *nftables.Table, *nftables.Conn) {}},
		{ID: "maps", Good: "maps with several parts, counters and timeouts can be made", Remedy: newer + "CONFIG_NF_TABLES", add: addSets},
		{ID: "nat-output", Good: "connections of this host can be led elsewhere", Remedy: newer + "CONFIG_NFT_NAT, or load module nft_chain_nat", add: base(nftables.ChainHookOutput, nftables.ChainPriorityNATDest)},
		{ID: "nat-prerouting", Good: "connections of others can be led elsewhere", Remedy: newer + "CONFIG_NFT_NAT, or load module nft_chain_nat", add: base(nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)},
		{ID: "choice", Good: "an endpoint can be chosen at random", Remedy: newer + "CONFIG_NFT_NUMGEN and CONFIG_NFT_REDIR, or load modules nft_numgen and nft_redir", add: addPicks},
		{ID: "affinity", Good: "a client can be kept at its endpoint", Remedy: newer + "CONFIG_NF_TABLES", add: addSticky},
		{ID: "masquerade", Good: "answers can be led back", Remedy: newer + "CONFIG_NFT_MASQ and CONFIG_NFT_FIB_IPV4, or load modules nft_masq and nft_fib_ipv4", add: everything},
		{ID: "ipv6", IPv6: true, Good: "all of this works for IPv6 too", Remedy: "frontends of IPv6 are not served: use a kernel with CONFIG_NF_TABLES_IPV6 and CONFIG_NFT_FIB_IPV6", add: everything},
	}
}

func addSets(f family, t *nftables.Table, c *nftables.Conn) {
	for _, id := range f.sets() {
		_ = c.AddSet(f.set(t, id.kind, id.side), nil) // fails for anonymous sets only
	}
}

func addPicks(f family, t *nftables.Table, c *nftables.Conn) {
	addSets(f, t, c)
	p := pick{slots: 3}
	addChain(c, chain{nftables.Chain{Table: t, Name: p.chain()}, f.pick(p)})
}

func addSticky(f family, t *nftables.Table, c *nftables.Conn) {
	at := plan.Place{Binding: dataplane.Binding{Addr: netip.AddrPortFrom(f.home(), 1), Protocol: dataplane.TCP}}
	e := &plan.Entry{Endpoints: []plan.Endpoint{{ID: 1, Addr: at.Addr}}, Slots: []uint64{1}, Sticky: time.Minute}
	_ = f.stickyBefore(c, t, at, nil, e)
}

// Try asks the kernel for it in a transaction that it cannot but give up: the last
// message deletes a chain that nobody made. So nothing comes into effect.
func (t Trial) Try() error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.CloseLasting()
	f := families()[0]
	if t.IPv6 {
		f = families()[1]
	}
	table := &nftables.Table{Name: "fairlead-probe", Family: f.nf}
	c.AddTable(table)
	t.add(f, table, c)
	c.DelChain(&nftables.Chain{Table: table, Name: "nobody-made-this"})
	return otherThanLast(c.Flush())
}

// otherThanLast takes the error that was provoked out of those of a transaction.
func otherThanLast(err error) error {
	if err == nil {
		return errors.New("the kernel took what it cannot take")
	}
	list := flatten(err)
	if len(list) == 1 && errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return fmt.Errorf("the kernel refuses it: %w", list[0])
}

// flatten lists the errors of the messages of a transaction.
func flatten(err error) []error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if joined, ok := e.(interface{ Unwrap() []error }); ok {
			var all []error
			for _, one := range joined.Unwrap() {
				all = append(all, flatten(one)...)
			}
			return all
		}
	}
	return []error{err}
}
