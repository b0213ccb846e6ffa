package table

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
)

// prefix begins the name of every table of ours.
const prefix = "fairlead-"

// Name is that of an instance's tables.
func Name(instance string) string {
	sum := sha256.Sum256([]byte(instance))
	return prefix + hex.EncodeToString(sum[:8])
}

func isName(name string) bool {
	tag, ours := strings.CutPrefix(name, prefix)
	_, err := hex.DecodeString(tag)
	return ours && err == nil && len(tag) == 16
}

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// dial opens a connection. The kernel takes a transaction in one piece, and answers
// each message before it is asked, so there has to be room.
func dial() (*nftables.Conn, error) {
	const bytes = 32 << 20
	c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(bytes), c.SetReadBuffer(bytes), widen(c))
	}))
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return c, nil
}

// widen has the kernel answer in pieces of 32 KiB. It makes them as large as the
// largest buffer that was read with, which for the library is 4 KiB, and walks a set
// anew for each piece: 50,000 elements would take seconds.
func widen(c *netlink.Conn) error {
	if _, err := c.Send(generationMessage()); err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	buffer := make([]byte, 64<<10)
	var received error
	err = raw.Read(func(fd uintptr) bool {
		_, _, received = unix.Recvfrom(int(fd), buffer, unix.MSG_DONTWAIT)
		return !errors.Is(received, unix.EAGAIN)
	})
	return errors.Join(err, received)
}

// set describes a set as it is made.
func (f family) set(table *nftables.Table, kind setKind, side plan.Side) *nftables.Set {
	place := []nftables.SetDatatype{f.addr, nftables.TypeInetProto, nftables.TypeInetService}
	pair := []nftables.SetDatatype{nftables.TypeMark, nftables.TypeMark}
	key, data := place, []nftables.SetDatatype(nil)
	s := &nftables.Set{Table: table, Name: setID{f.v6, kind, side}.name()}
	switch kind {
	case frontends:
		s.IsMap, s.DataType = true, nftables.TypeVerdict
	case captured:
	case slots:
		key, data = append(place, nftables.TypeMark), []nftables.SetDatatype{f.addr, nftables.TypeInetService}
		s.Counter = true
	case services:
		key = pair
	case about:
		key = []nftables.SetDatatype{nftables.TypeMark}
	}
	s.KeyType = concat(key)
	s.Concatenation = len(key) > 1
	if data != nil {
		s.IsMap, s.DataType = true, concat(data)
	}
	return s
}

// concat joins types; the library refuses more than five, which no set here has.
func concat(types []nftables.SetDatatype) nftables.SetDatatype {
	if len(types) == 1 {
		return types[0]
	}
	t, _ := nftables.ConcatSetType(types...)
	return t
}

func bothSides() [2]plan.Side { return [2]plan.Side{plan.Local, plan.Foreign} }

// sets are all that a table has.
func (f family) sets() []setID {
	var all []setID
	for _, side := range bothSides() {
		all = append(all, setID{f.v6, frontends, side}, setID{f.v6, slots, side})
	}
	if !f.v6 {
		all = append(all, setID{kind: services}, setID{kind: about})
	}
	return all
}

// chain is a chain and its rules.
type chain struct {
	nftables.Chain
	rules [][]expr.Any
}

// refusal is the chain that refuses.
const refusal = "refuse"

// chains are those that no class has.
func (f family) chains(table *nftables.Table, forwarded bool) []chain {
	base := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority, rules ...[]expr.Any) chain {
		return chain{nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority}, rules}
	}
	all := []chain{
		{nftables.Chain{Table: table, Name: refusal}, [][]expr.Any{f.refuse()}},
		base("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest, f.dispatch(plan.Foreign), f.dispatch(plan.Local)),
		base("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource, f.masquerade()...),
	}
	if !forwarded {
		all = append(all, base("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest, f.dispatch(plan.Local)))
	}
	return all
}

// handles finds what is there by name.
type handles struct {
	chains map[string]int // rules of each
	sets   map[string]bool
}

// look reads the shape of a table; nil if there is none.
func look(c *nftables.Conn, a *asker, t *nftables.Table) (*handles, error) {
	tables, err := c.ListTablesOfFamily(t.Family)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	there := false
	for _, have := range tables {
		there = there || have.Name == t.Name
	}
	if !there {
		return nil, nil
	}
	h := &handles{chains: make(map[string]int), sets: make(map[string]bool)}
	chains, err := c.ListChainsOfTableFamily(t.Family)
	if err != nil {
		return nil, fmt.Errorf("list chains: %w", err)
	}
	for _, ch := range chains {
		if ch.Table.Name == t.Name {
			h.chains[ch.Name] = 0
		}
	}
	if err := a.countRules(t, h.chains); err != nil {
		return nil, err
	}
	sets, err := c.GetSets(t)
	if err != nil {
		return nil, fmt.Errorf("list sets: %w", err)
	}
	for _, s := range sets {
		h.sets[s.Name] = true
	}
	return h, nil
}
