package table

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plan"
	"github.com/fairlead/fairlead/dataplane"
)

// Tables are those of one instance. They are used by one goroutine at a time.
type Tables struct {
	options  Options
	families []family
	made     bool                       // they are in the kernel
	picks    map[bool]map[pick]bool     // chains that are there, by "is IPv6"
	sticky   map[plan.Place]*plan.Entry // entries that have chains of their own
	orphans  map[bool]orphans

	// These are kept: to close a connection after a transaction waits until the
	// kernel has freed what that deleted, some 15 ms.
	conn  *nftables.Conn
	asker *asker
}

// Options say which tables.
type Options struct {
	Instance  string
	Forwarded bool // leave the traffic of this host alone
	NoIPv6    bool
}

// ErrDamaged is wrapped by what Check finds that is not as it was made.
var ErrDamaged = errors.New("not as this provider left it")

// New returns the tables of an instance. It touches nothing.
func New(o Options) *Tables {
	both := families()
	t := &Tables{options: o, families: both[:]}
	if o.NoIPv6 {
		t.families = t.families[:1]
	}
	t.forget()
	return t
}

func (t *Tables) connect() (*nftables.Conn, error) {
	if t.conn == nil {
		c, err := dial()
		if err != nil {
			return nil, err
		}
		a, err := newAsker()
		if err != nil {
			return nil, errors.Join(err, c.CloseLasting())
		}
		t.conn, t.asker = c, a
	}
	return t.conn, nil
}

// Close gives up the connection to the kernel, where the tables stay.
func (t *Tables) Close() {
	if t.conn != nil {
		_, _ = t.conn.CloseLasting(), t.asker.conn.Close()
		t.conn, t.asker = nil, nil
	}
}

// Forget is to be called when the tables were removed.
func (t *Tables) Forget() { t.forget() }

func (t *Tables) forget() {
	t.made = false
	t.picks, t.sticky = map[bool]map[pick]bool{false: {}, true: {}}, make(map[plan.Place]*plan.Entry)
	t.orphans = make(map[bool]orphans)
}

func (t *Tables) table(f family) *nftables.Table {
	return &nftables.Table{Name: Name(t.options.Instance), Family: f.nf}
}

// Load reads what is in the kernel, and remembers its shape. Nil means that there
// is nothing, or nothing that could be gone on with.
func (t *Tables) Load() (*Content, error) {
	t.forget()
	c, err := t.connect()
	if err != nil {
		return nil, err
	}
	raw, shapes := make(elements), make(map[bool]*handles)
	for _, f := range t.families {
		h, err := look(c, t.asker, t.table(f))
		if err != nil {
			return nil, err
		}
		if err := t.misses(f, h); err != nil {
			return nil, nil // made anew
		}
		for _, id := range f.sets() {
			if err := read(c, f.set(t.table(f), id.kind, id.side), id, raw); err != nil {
				return nil, err
			}
		}
		t.loadPicks(f, h)
		shapes[f.v6] = h
	}
	content := decode(raw)
	for at, e := range content.Entries {
		if sticky(e) != nil {
			t.sticky[at] = e
		}
	}
	for _, f := range t.families {
		if t.misses(f, shapes[f.v6]) != nil {
			t.forget()
			return nil, nil
		}
		t.findOrphans(f, shapes[f.v6])
	}
	mark, ok := decodeMark(raw)
	if !ok {
		t.forget()
		return nil, nil
	}
	content.Mark = mark
	t.made = true
	return content, nil
}

func read(c *nftables.Conn, s *nftables.Set, id setID, into elements) error {
	list, err := c.GetSetElements(s)
	if err != nil {
		return fmt.Errorf("read set %s of table %s: %w", s.Name, s.Table.Name, err)
	}
	for _, e := range list {
		data := string(e.Val)
		if s.DataType == nftables.TypeVerdict {
			data = chainIn(e.Val)
		}
		into.put(id, e.Key, element{data: data, comment: e.Comment})
	}
	return nil
}

// chainIn is the chain of a verdict, whose attributes the library hands on as they are.
func chainIn(verdict []byte) string {
	ad, err := netlink.NewAttributeDecoder(verdict)
	if err != nil {
		return ""
	}
	for ad.Next() {
		if ad.Type() == unix.NFTA_VERDICT_CHAIN {
			return ad.String()
		}
	}
	return ""
}

// loadPicks finds the chains for numbers of slots.
func (t *Tables) loadPicks(f family, h *handles) {
	for name := range h.chains {
		for _, side := range bothSides() {
			var p pick
			if _, err := fmt.Sscanf(name, "pick-%d", &p.slots); err == nil {
				if p.side = side; p.chain() == name {
					t.picks[f.v6][p] = true
				}
			}
		}
	}
}

// misses says what of the shape of a table is not there.
func (t *Tables) misses(f family, h *handles) error {
	if h == nil {
		return fmt.Errorf("%w: table %s of %s is gone", ErrDamaged, Name(t.options.Instance), f.protocol())
	}
	for _, id := range f.sets() {
		if !h.sets[id.name()] {
			return fmt.Errorf("%w: set %s of %s is gone", ErrDamaged, id.name(), f.protocol())
		}
	}
	want := make(map[string]int)
	for _, ch := range f.chains(nil, t.options.Forwarded) {
		want[ch.Name] = len(ch.rules)
	}
	for p := range t.picks[f.v6] {
		want[p.chain()] = len(f.pick(p))
	}
	for at, e := range t.sticky {
		if at.Addr.Addr().Is6() != f.v6 {
			continue
		}
		want[stickyChain(at)] = len(e.Endpoints) + 1
		for _, ep := range e.Endpoints {
			want[endChain(at, ep.ID)] = len(f.end(at, ep, e.Sticky))
		}
	}
	for name, rules := range want {
		if have, there := h.chains[name]; !there || have != rules {
			return fmt.Errorf("%w: chain %s of %s has %d rules, and had %d", ErrDamaged, name, f.protocol(), have, rules)
		}
	}
	if _, there := h.chains["output"]; there && t.options.Forwarded {
		return fmt.Errorf("%w: there is a chain output, which mode forwarded has not", ErrDamaged)
	}
	return nil
}

func (f family) protocol() string {
	if f.v6 {
		return "ip6"
	}
	return "ip"
}

// Made reports whether the tables are in the kernel, as far as is known.
func (t *Tables) Made() bool { return t.made }

// Check looks whether the shape of the tables is as it was made: tables, chains,
// rules and sets, not what sets hold.
func (t *Tables) Check() error {
	c, err := t.connect()
	if err != nil {
		return err
	}
	for _, f := range t.families {
		h, err := look(c, t.asker, t.table(f))
		if err != nil {
			return err
		}
		if err := t.misses(f, h); err != nil {
			return err
		}
	}
	return nil
}

// Counters are how often connections and datagrams were led somewhere. Each begins at 0
// when its element does.
type Counters map[plan.Place]map[Counted]uint64

// Counted is what has a counter: a slot that leads to an endpoint, or with affinity
// the endpoint itself, as slot -1.
type Counted struct {
	Endpoint uint64
	Slot     int
}

// Counters reads them.
func (t *Tables) Counters() (Counters, error) {
	all := make(Counters)
	if !t.made {
		return all, nil
	}
	c, err := t.connect()
	if err != nil {
		return nil, err
	}
	add := func(at plan.Place, what Counted, n uint64) {
		if all[at] == nil {
			all[at] = make(map[Counted]uint64)
		}
		all[at][what] = n
	}
	for _, f := range t.families {
		for _, side := range bothSides() {
			id := setID{f.v6, slots, side}
			list, err := c.GetSetElements(f.set(t.table(f), slots, side))
			if err != nil {
				return nil, fmt.Errorf("read counters: %w", err)
			}
			for _, e := range list {
				n := max(0, len(e.Key)-4)
				at, ok := placeOf(id, string(e.Key[:n]))
				end, err := strconv.ParseUint(e.Comment, 16, 64)
				if ok && err == nil && e.Counter != nil {
					add(at, Counted{end, int(binary.NativeEndian.Uint32(e.Key[n:]))}, e.Counter.Packets)
				}
			}
		}
	}
	for at, e := range t.sticky {
		f := familyOf(at)
		for _, ep := range e.Endpoints {
			rules, err := c.GetRules(t.table(f), &nftables.Chain{Name: endChain(at, ep.ID)})
			if err != nil {
				return nil, fmt.Errorf("read counters: %w", err)
			}
			for _, rule := range rules {
				for _, part := range rule.Exprs {
					if n, is := part.(*expr.Counter); is {
						add(at, Counted{ep.ID, -1}, n.Packets)
					}
				}
			}
		}
	}
	return all, nil
}

// Change is one entry that becomes another; nil is none.
type Change struct {
	At       plan.Place
	Old, New *plan.Entry
}

// ServiceChange is the number of a service's endpoints that becomes another; below
// 0 is no service.
type ServiceChange struct {
	Key      dataplane.Key
	Old, New int
}

// Update is what one generation changes.
type Update struct {
	Changes  []Change
	Services []ServiceChange
	Was, Is  Mark
}

// Apply brings an update into the kernel, all of it in one transaction unless it
// is large. It returns how many elements were added and deleted. After an error
// nobody knows what is there: Load, and Sync.
func (t *Tables) Apply(ctx context.Context, u Update) (int, error) {
	w := newWriter(t)
	for _, c := range u.Changes {
		was, is := make(elements), make(elements)
		was.render(c.At, c.Old)
		is.render(c.At, c.New)
		w.replace(was, is)
		w.need(c)
		if err := w.pause(ctx, u.Was); err != nil {
			return w.ops, err
		}
	}
	for _, s := range u.Services {
		was, is := make(elements), make(elements)
		if s.Old >= 0 {
			was.renderService(s.Key, s.Old)
		}
		if s.New >= 0 {
			is.renderService(s.Key, s.New)
		}
		w.replace(was, is)
	}
	return w.ops, w.end(u.Was, u.Is)
}

// Sync makes the kernel what is said, whatever was there: found by Load, or nil.
func (t *Tables) Sync(ctx context.Context, found *Content, entries map[plan.Place]*plan.Entry, counts map[dataplane.Key]int, is Mark) (int, error) {
	var was Mark
	raw := make(elements)
	if found != nil {
		was, raw = found.Mark, maps.Clone(found.raw)
		delete(raw, setID{kind: about})
	}
	if !t.made {
		raw = nil
	}
	w := newWriter(t)
	if len(raw) > 0 {
		// What is not wanted goes first: an entry that is new may stand in its place.
		want := make(elements)
		for k, n := range counts {
			want.renderService(k, n)
		}
		for at, e := range entries {
			want.render(at, e)
		}
		w.remove(raw, want)
	}
	for at, e := range entries {
		one := make(elements)
		one.render(at, e)
		w.add(raw, one)
		w.need(Change{At: at, New: e})
		if err := w.pause(ctx, was); err != nil {
			return w.ops, err
		}
	}
	for at := range t.sticky {
		if entries[at] == nil {
			w.need(Change{At: at})
		}
	}
	one := make(elements)
	for k, n := range counts {
		one.renderService(k, n)
	}
	w.add(raw, one)
	return w.ops, w.end(was, is)
}

// build adds what every table has to a transaction. What is there already goes in
// the same one.
func (t *Tables) build(c *nftables.Conn) error {
	t.forget()
	for _, f := range t.families {
		table := t.table(f)
		c.AddTable(table)
		c.DelTable(table)
		c.AddTable(table)
		for _, id := range f.sets() {
			if err := c.AddSet(f.set(table, id.kind, id.side), nil); err != nil {
				return fmt.Errorf("set %s: %w", id.name(), err)
			}
		}
		for _, ch := range f.chains(table, t.options.Forwarded) {
			addChain(c, ch)
		}
	}
	return nil
}

func addChain(c *nftables.Conn, ch chain) {
	c.AddChain(&ch.Chain)
	for _, exprs := range ch.rules {
		c.AddRule(&nftables.Rule{Table: ch.Table, Chain: &ch.Chain, Exprs: exprs})
	}
}
