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

// Remove removes tables.
func (f Found) Remove(tables []Table) error {
	return f.change(func(c *nftables.Conn) error {
		for _, t := range tables {
			c.DelTable(t.table())
		}
		return nil
	})
}

// Leave puts a rule that does nothing in the place of all tables, in one transaction,
// so that no connection is cut off. From then on none is led any more.
func (f *Found) Leave() error {
	keep := slices.Clone(f.Keep)
	err := f.change(func(c *nftables.Conn) error {
		for _, t := range f.Tables {
			if k := (Table{t.V6, KeepName(f.Tag)}); !slices.Contains(keep, k) {
				keep = append(keep, k)
				if err := k.add(c); err != nil {
					return err
				}
			}
			c.DelTable(t.table())
		}
		return nil
	})
	if err == nil {
		f.Tables, f.Keep = nil, keep
	}
	return err
}

// Note writes down the frontends of the connections that are waited for, for a process
// that comes later.
func (f Found) Note(live map[dataplane.Binding]int) error {
	return f.change(func(c *nftables.Conn) error {
		for _, k := range f.Keep {
			var list []nftables.SetElement
			for b := range live {
				if b.Addr.Addr().Is6() == k.V6 {
					list = append(list, nftables.SetElement{Key: placeKey(plan.Place{Binding: b})})
				}
			}
			const most = 500 // in one message
			for chunk := range slices.Chunk(list, most) {
				if err := c.SetAddElements(k.set(), chunk); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// change is one transaction.
func (f Found) change(edit func(*nftables.Conn) error) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.CloseLasting()
	if err = edit(c); err == nil {
		err = c.Flush()
	}
	if err != nil {
		return fmt.Errorf("change the tables of %s: %w", f.Tag, err)
	}
	return nil
}

// add makes the table with its one rule, which matches nothing.
func (f Table) add(c *nftables.Conn) error {
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
	return c.AddSet(f.set(), nil)
}

// dropKeep removes what an instance left when it went: it is back.
func (t *Tables) dropKeep(c *nftables.Conn) {
	for _, f := range t.families {
		k := Table{f.v6, KeepName(Name(t.options.Instance))}
		c.AddTable(k.table()) // there may be none
		c.DelTable(k.table())
	}
}
