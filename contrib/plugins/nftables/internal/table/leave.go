package table

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
)

// keepPrefix begins the name of a table that holds one rule and does nothing.
// Connections that were led somewhere are cut off when the last rule that wants
// NAT goes, so it stays until they have ended.
const keepPrefix = "fairlead-keep-"

// KeepName is the name of the table that waits, by that of an instance.
func KeepName(tag string) string { return keepPrefix + strings.TrimPrefix(tag, prefix) }

// Found is what is there of one instance.
type Found struct {
	Tag    string // name of its tables
	Mark   Mark   // as far as it can be read
	Tables []Table
	Keep   []Table
	// Frontends are what is captured, or was by the connections that Keep waits for.
	Frontends []dataplane.Binding
}

// Table is one table.
type Table struct {
	V6   bool
	Name string
}

// String prints it as nft does.
func (f Table) String() string { return "table " + f.family().protocol() + " " + f.Name }

func (f Table) family() family {
	if f.V6 {
		return families()[1]
	}
	return families()[0]
}

func (f Table) table() *nftables.Table {
	return &nftables.Table{Name: f.Name, Family: f.family().nf}
}

// Find lists what instances left. It knows them by name, and needs nothing else.
func Find() ([]Found, error) {
	c, err := dial()
	if err != nil {
		return nil, err
	}
	defer c.CloseLasting()
	byTag := make(map[string]*Found)
	of := func(tag string) *Found {
		if byTag[tag] == nil {
			byTag[tag] = &Found{Tag: tag}
		}
		return byTag[tag]
	}
	for _, f := range families() {
		list, err := c.ListTablesOfFamily(f.nf)
		if err != nil {
			return nil, fmt.Errorf("list tables: %w", err)
		}
		for _, t := range list {
			one := Table{f.v6, t.Name}
			if tag, is := strings.CutPrefix(t.Name, keepPrefix); is && isName(prefix+tag) {
				of(prefix + tag).Keep = append(of(prefix+tag).Keep, one)
			} else if isName(t.Name) {
				of(t.Name).Tables = append(of(t.Name).Tables, one)
			}
		}
	}
	var all []Found
	for _, f := range byTag {
		f.read(c)
		all = append(all, *f)
	}
	slices.SortFunc(all, func(a, b Found) int { return cmp.Compare(a.Tag, b.Tag) })
	return all, nil
}

// read reads what the tables say of themselves. A table without is one of ours that
// somebody spoilt.
func (f *Found) read(c *nftables.Conn) {
	raw := make(elements)
	for _, t := range f.Tables {
		for _, id := range []setID{{kind: about}, {v6: t.V6, kind: frontends}} {
			_ = read(c, t.family().set(t.table(), id.kind, id.side), id, raw)
		}
	}
	f.Mark, _ = decodeMark(raw)
	for id, set := range raw {
		for key := range set {
			if at, ok := placeOf(id, key); ok && id.kind == frontends {
				f.Frontends = append(f.Frontends, at.Binding)
			}
		}
	}
	for _, k := range f.Keep {
		kept := make(elements)
		id := setID{v6: k.V6, kind: captured}
		_ = read(c, k.set(), id, kept)
		for key := range kept[id] {
			if at, ok := placeOf(id, key); ok {
				f.Frontends = append(f.Frontends, at.Binding)
			}
		}
	}
}

// set of a table that waits: the frontends of connections.
func (f Table) set() *nftables.Set { return f.family().set(f.table(), captured, 0) }

// Remove removes tables, and leaves an inert rule where connections to frontends go
// on: in the same transaction, so that none of them is cut off.
func (f Found) Remove(tables []Table, live map[dataplane.Binding]int) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.CloseLasting()
	for _, v6 := range []bool{false, true} {
		keep := Table{v6, KeepName(f.Tag)}
		var list []nftables.SetElement
		for b := range live {
			if b.Addr.Addr().Is6() == v6 {
				list = append(list, nftables.SetElement{Key: placeKey(plan.Place{Binding: b})})
			}
		}
		if len(list) == 0 || slices.Contains(f.Keep, keep) {
			continue
		}
		if err := keep.add(c, list); err != nil {
			return err
		}
	}
	for _, t := range tables {
		c.DelTable(t.table())
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("remove tables of %s: %w", f.Tag, err)
	}
	return nil
}

// add makes the table with its one rule, which matches nothing.
func (f Table) add(c *nftables.Conn, live []nftables.SetElement) error {
	t := f.table()
	c.AddTable(t)
	ch := chain{
		nftables.Chain{Table: t, Name: "inert", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
		[][]expr.Any{{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: r(0)},
			&expr.Cmp{Op: expr.CmpOpEq, Register: r(0), Data: []byte{255}}, // no such protocol
			&expr.Masq{},
		}},
	}
	addChain(c, ch)
	s := f.set()
	if err := c.AddSet(s, nil); err != nil {
		return err
	}
	const most = 500 // in one message
	for chunk := range slices.Chunk(live, most) {
		if err := c.SetAddElements(s, chunk); err != nil {
			return err
		}
	}
	return nil
}

// dropKeep removes what an instance left when it went: it is back.
func (t *Tables) dropKeep(c *nftables.Conn) {
	for _, f := range t.families {
		k := Table{f.v6, KeepName(Name(t.options.Instance))}
		c.AddTable(k.table()) // there may be none
		c.DelTable(k.table())
	}
}
