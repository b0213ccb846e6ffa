package store

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// script applies commands one entry each.
type script struct {
	t     *testing.T
	m     *Machine
	index uint64
	term  uint64
}

func newScript(t *testing.T) *script { return &script{t: t, m: NewMachine(), term: 1} }

func (s *script) do(c Command) Result {
	s.t.Helper()
	if c.Space == 0 {
		c.Space = User
	}
	s.index++
	return s.m.Apply(s.index, s.term, []Command{c})[0]
}

func (s *script) fine(c Command) Result {
	s.t.Helper()
	r := s.do(c)
	if r.Err != nil {
		s.t.Fatal(r.Err)
	}
	return r
}

func (s *script) refused(c Command, want error) {
	s.t.Helper()
	before := s.m.View()
	if r := s.do(c); !errors.Is(r.Err, want) {
		s.t.Errorf("%v, want %v", r.Err, want)
	}
	if c.Client == nil && before.user.digest != s.m.user.digest {
		s.t.Errorf("it is refused (%v) and changed something", want)
	}
}

func put(key, value string) Op { return Op{Put: &PutOp{Key: key, Value: []byte(value)}} }
func get(key string) Op        { return Op{Range: &RangeOp{Range: Range{Key: key}}} }
func txn(then ...Op) Op        { return Op{Txn: &TxnOp{Then: then}} }
func of(op Op) Command         { return Command{Op: &op} }
func (s *script) value(key string) string {
	s.t.Helper()
	r, err := s.m.View().Range(User, RangeOp{Range: Range{Key: key}})
	if err != nil {
		s.t.Fatal(err)
	}
	if len(r.KVs) == 0 {
		return "–"
	}
	return string(r.KVs[0].Value)
}

func TestRefusals(t *testing.T) {
	s := newScript(t)
	s.fine(of(put("a", "1")))
	s.fine(Command{Grant: &Grant{ID: 7, TTLSeconds: 5}})
	deep := put("z", "")
	for range MaxTxnOps + 1 {
		deep = txn(deep)
	}
	deepest := put("z", "")
	for range MaxTxnOps {
		deepest = txn(deepest)
	}
	s.fine(of(deepest))
	if _, err := DecodeCommands(EncodeCommands([]Command{of(deepest)})); err != nil {
		t.Errorf("invariant readable: %v", err)
	}
	wide := make([]Op, MaxTxnOps+1)
	for i := range wide {
		wide[i] = get("a")
	}
	full := make([]Op, MaxTxnOps/2)
	for i := range full {
		full[i] = txn(wide[:MaxTxnOps/2]...)
	}
	other := func(ops ...Op) Command { return of(Op{Txn: &TxnOp{Else: ops}}) }
	for name, c := range map[string]struct {
		Command
		want error
	}{
		"no command":              {Command{}, ErrInvalid},
		"no space":                {Command{Space: 9, Disarm: &Disarm{}}, ErrInvalid},
		"no operation":            {of(Op{}), ErrInvalid},
		"two operations":          {of(txn(Op{Put: &PutOp{Key: "a"}, Range: &RangeOp{Range: Range{Key: "a"}}})), ErrInvalid},
		"empty key":               {of(put("", "")), ErrEmptyKey},
		"empty range":             {of(get("")), ErrEmptyKey},
		"empty delete":            {of(Op{Delete: &DeleteOp{}}), ErrEmptyKey},
		"empty compare":           {of(Op{Txn: &TxnOp{Compares: []Compare{{Target: TargetMod}}}}), ErrEmptyKey},
		"compare of keys":         {of(Op{Txn: &TxnOp{Compares: []Compare{{Range: Range{Key: "a"}}}}}), ErrInvalid},
		"future":                  {of(Op{Range: &RangeOp{Range: Range{Key: "a"}, Revision: 99}}), ErrFutureRevision},
		"value beside keep":       {of(Op{Put: &PutOp{Key: "a", Value: []byte("x"), KeepValue: true}}), ErrValueProvided},
		"lease beside keep":       {of(Op{Put: &PutOp{Key: "a", Lease: 7, KeepLease: true}}), ErrLeaseProvided},
		"keep of nothing":         {of(Op{Put: &PutOp{Key: "b", KeepValue: true}}), ErrKeyNotFound},
		"unknown lease":           {of(Op{Put: &PutOp{Key: "b", Lease: 8}}), ErrLeaseNotFound},
		"lease before the key":    {of(Op{Put: &PutOp{Key: "b", Lease: 8, KeepValue: true}}), ErrLeaseNotFound},
		"second of two":           {of(txn(put("b", "1"), Op{Put: &PutOp{Key: "c", Lease: 8}})), ErrLeaseNotFound},
		"key twice":               {of(txn(put("b", "1"), put("b", "2"))), ErrDuplicateKey},
		"key under a delete":      {of(txn(Op{Delete: &DeleteOp{Range: Range{Key: "a", End: "c"}}}, put("b", "2"))), ErrDuplicateKey},
		"key before a delete":     {of(txn(put("b", "2"), Op{Delete: &DeleteOp{Range: Range{Key: "a", End: FromKey}}})), ErrDuplicateKey},
		"key in an inner one":     {of(txn(put("b", "2"), txn(put("b", "1")))), ErrDuplicateKey},
		"key in the other branch": {of(Op{Txn: &TxnOp{Else: []Op{put("b", "2")}, Then: []Op{put("c", "1"), put("c", "1")}}}), ErrDuplicateKey},
		"too deep":                {of(deep), ErrTooManyOps},
		"too wide":                {of(txn(wide...)), ErrTooManyOps},
		"too many":                {of(txn(full...)), ErrTooManyOps},
		"too wide with the outer": {of(txn(get("a"), txn(wide[:MaxTxnOps-1]...))), ErrTooManyOps},
		"empty key, not taken":    {other(put("", "")), ErrEmptyKey},
		"value, not taken":        {other(Op{Put: &PutOp{Key: "a", Value: []byte("x"), KeepValue: true}}), ErrValueProvided},
		"lease, not taken":        {other(Op{Put: &PutOp{Key: "a", Lease: 7, KeepLease: true}}), ErrLeaseProvided},
		"lease 0":                 {Command{Grant: &Grant{TTLSeconds: 1}}, ErrInvalid},
		"lease again":             {Command{Grant: &Grant{ID: 7, TTLSeconds: 1}}, ErrLeaseExists},
		"lease for no time":       {Command{Grant: &Grant{ID: 8}}, ErrLeaseTTL},
		"lease for ever":          {Command{Grant: &Grant{ID: 8, TTLSeconds: MaxTTLSeconds + 1}}, ErrLeaseTTL},
		"revoke of nothing":       {Command{Revoke: &Revoke{ID: 8}}, ErrLeaseNotFound},
		"compaction to come":      {Command{Compact: &Compact{Revision: 99}}, ErrFutureRevision},
		"compaction before all":   {Command{Compact: &Compact{Revision: 0}}, ErrCompacted},
		"quota of nothing":        {Command{Quota: &Quota{}}, ErrInvalid},
		"command of another term": {Command{Term: 2, Disarm: &Disarm{}}, ErrFenced},
		"of nobody known":         {Command{Client: &Client{Sequence: 1}, Disarm: &Disarm{}}, ErrClientUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.refused(c.Command, c.want)
			checked := c.Check()
			if checked != nil && !errors.Is(checked, c.want) {
				t.Errorf("invariant readable: checked: %v, want %v", checked, c.want)
			}
			if _, err := DecodeCommands(EncodeCommands([]Command{c.Command})); err != nil && checked == nil {
				t.Errorf("invariant readable: it is let into the log, and cannot be read there: %v", err)
			}
		})
	}
}

// What all ranges of a transaction return has a bound: it is in the memory of each
// server, at once. What only counts has none, nor has one range alone.
func TestRangesOfATransactionHaveABound(t *testing.T) {
	s := newScript(t)
	for i := range 4 {
		s.fine(of(put(strconv.Itoa(i), strings.Repeat("v", 1<<20))))
	}
	many := func(r RangeOp) Command {
		r.Range = Range{Key: "\x00", End: FromKey}
		list := make([]Op, 60)
		for i := range list {
			list[i] = Op{Range: &r}
		}
		return of(txn(append(list, txn(list...), txn(list...), txn(list...), put("w", ""))...))
	}
	s.refused(many(RangeOp{}), ErrTooLarge)
	s.refused(many(RangeOp{Limit: 2}), ErrTooLarge)
	s.refused(many(RangeOp{MinMod: 3}), ErrTooLarge)
	s.refused(many(RangeOp{Limit: 2, Order: Descending}), ErrTooLarge)
	for _, fits := range []RangeOp{{Limit: 1}, {Limit: 1, Order: Descending}, {KeysOnly: true}, {CountOnly: true}, {MinMod: 99}} {
		s.fine(many(fits))
	}
	if _, err := s.m.View().Eval(User, txn(many(RangeOp{}).Op.Txn.Then[:63]...)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("of what only reads: %v", err)
	}
}

// A transaction may write a key in either branch, and delete one twice.
func TestNoDuplicates(t *testing.T) {
	s := newScript(t)
	gone := Op{Delete: &DeleteOp{Range: Range{Key: "a"}}}
	s.fine(of(Op{Txn: &TxnOp{Then: []Op{put("b", "1")}, Else: []Op{put("b", "2")}}}))
	s.fine(of(txn(gone, gone, put("c", ""))))
	s.fine(of(txn(Op{Txn: &TxnOp{Then: []Op{put("d", "1")}, Else: []Op{put("d", "2")}}})))
}

// Compares of an inner transaction see what was there before the outer one, and
// its ranges what was written by then.
func TestInnerTransaction(t *testing.T) {
	s := newScript(t)
	inner := Op{Txn: &TxnOp{
		Compares: []Compare{{Range: Range{Key: "a"}, Target: TargetVersion, Relation: Equal, Number: 0}},
		Then:     []Op{get("a")}, Else: []Op{put("b", "wrong")},
	}}
	r := s.fine(of(txn(put("a", "1"), inner)))
	got := r.Op.Txn.Results[1].Txn
	if !got.Succeeded || len(got.Results[0].Range.KVs) != 1 || got.Results[0].Range.KVs[0].Mod != r.Revision {
		t.Errorf("%+v", got)
	}
}

// A compare of a range holds if it does for each key; of no key, as for one that
// is not there.
func TestCompares(t *testing.T) {
	s := newScript(t)
	s.fine(of(put("a", "1")))
	s.fine(of(put("b", "2")))
	s.fine(of(put("b", "3")))
	for text, want := range map[string]bool{
		"a version = 1": true, "a version > 1": false, "b version > 1": true, "b create = 3": true, "b mod = 4": true, "b mod < 4": false,
		"a value = 1": true, "a value < 2": true, "a value ! 1": false, "b lease = 0": true, "a-c version > 0": true, "a-c version > 1": false,
		"a-c value ! 9": true, "x value ! 1": false, "x value = ": false, "x version = 0": true, "x mod ! 0": false, "x-z mod = 0": true, "x-z value ! 1": false,
	} {
		f := strings.SplitN(text, " ", 4)
		key, end, _ := strings.Cut(f[0], "-")
		c := Compare{Range: Range{key, end}, Value: []byte(f[3])}
		c.Number, _ = strconv.ParseInt(f[3], 10, 64)
		c.Target = map[string]Target{"version": TargetVersion, "create": TargetCreate, "mod": TargetMod, "value": TargetValue, "lease": TargetLease}[f[1]]
		c.Relation = map[string]Relation{"=": Equal, ">": Greater, "<": Less, "!": NotEqual}[f[2]]
		if got := s.fine(of(Op{Txn: &TxnOp{Compares: []Compare{c}}})).Op.Txn.Succeeded; got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if s.m.user.revision != 4 {
		t.Error("a transaction that writes nothing made a revision")
	}
}

// Of an unordered range the limit comes before the sorting, as in etcd: one key
// more than it are looked at.
func TestLimitOfAnUnorderedRange(t *testing.T) {
	s := newScript(t)
	for i, key := range []string{"a", "b", "c"} {
		s.fine(of(put(key, strconv.Itoa(9-i))))
	}
	for order, want := range map[Order]string{Unordered: "b", Ascending: "c"} {
		r, err := s.m.View().Range(User, RangeOp{Range: Range{Key: "a", End: FromKey}, Target: TargetValue, Order: order, Limit: 1})
		if err != nil || len(r.KVs) != 1 || r.KVs[0].Key != want || !r.More || r.Count != 3 {
			t.Errorf("order %d: %+v, %v, want %s", order, r, err, want)
		}
	}
}

func TestRangeOptions(t *testing.T) {
	s := newScript(t)
	for _, kv := range []string{"a 3", "b 1", "c 2", "b 0"} { // revisions 2 to 5
		k, v, _ := strings.Cut(kv, " ")
		s.fine(of(put(k, v)))
	}
	all := Range{Key: "\x00", End: FromKey}
	for name, c := range map[string]struct {
		op   RangeOp
		want string // keys in order
		more bool
	}{
		"all":           {RangeOp{}, "abc", false},
		"limit":         {RangeOp{Limit: 2}, "ab", true},
		"limit of all":  {RangeOp{Limit: 3}, "abc", false},
		"last first":    {RangeOp{Order: Descending, Limit: 1}, "c", true},
		"by value":      {RangeOp{Target: TargetValue}, "bca", false},
		"by mod, down":  {RangeOp{Target: TargetMod, Order: Descending}, "bca", false},
		"by create":     {RangeOp{Target: TargetCreate, Order: Ascending}, "abc", false},
		"by version":    {RangeOp{Target: TargetVersion, Order: Descending, Limit: 1}, "b", true},
		"mod from":      {RangeOp{MinMod: 4, Limit: 2}, "bc", false},
		"mod to":        {RangeOp{MaxMod: 4}, "ac", false},
		"create bounds": {RangeOp{MinCreate: 3, MaxCreate: 3}, "b", false},
		"in the past":   {RangeOp{Revision: 3}, "ab", false},
		"count":         {RangeOp{CountOnly: true, Limit: 1}, "", false},
	} {
		c.op.Range = all
		r, err := s.m.View().Range(User, c.op)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := ""
		for _, kv := range r.KVs {
			got += kv.Key
		}
		count := int64(3)
		if c.op.Revision == 3 {
			count = 2
		}
		if got != c.want || r.More != c.more || r.Count != count {
			t.Errorf("%s: %q, more %v, count %d", name, got, r.More, r.Count)
		}
	}
	r, err := s.m.View().Range(User, RangeOp{Range: Range{Key: "a"}, KeysOnly: true})
	if err != nil || r.KVs[0].Value != nil || s.value("a") != "3" {
		t.Errorf("%v, %v", r, err)
	}
}

// The spaces know nothing of each other.
func TestSpacesAreApart(t *testing.T) {
	s := newScript(t)
	s.fine(of(put("a", "user")))
	op := put("a", "system")
	s.fine(Command{Space: System, Op: &op})
	everything := Op{Delete: &DeleteOp{Range: Range{Key: "\x00", End: FromKey}}}
	if r := s.fine(of(everything)); r.Op.Delete.Deleted != 1 {
		t.Errorf("%d keys deleted", r.Op.Delete.Deleted)
	}
	r, err := s.m.View().Range(System, RangeOp{Range: Range{Key: "a"}})
	if err != nil || len(r.KVs) != 1 || string(r.KVs[0].Value) != "system" {
		t.Errorf("%v, %v", r, err)
	}
	// The same in the other space is not the same state.
	one, other := newScript(t), newScript(t)
	one.fine(of(put("a", "")))
	other.fine(Command{Space: System, Op: &Op{Put: &PutOp{Key: "a", Value: []byte{}}}})
	if one.m.View().Digest() == other.m.View().Digest() {
		t.Error("a key of one space has the digest of one of the other")
	}
}

// A full space takes no more puts and leases until its alarm is ended; deletes,
// compactions and the other space go on.
func TestQuota(t *testing.T) {
	s := newScript(t)
	s.fine(Command{Quota: &Quota{Bytes: 3 * (versionBytes + 4)}})
	s.fine(of(put("abc", "1")))
	s.fine(of(put("abc", "2")))
	s.refused(of(put("abc", "much too much")), ErrNoSpace)
	s.refused(of(put("a", "")), ErrNoSpace) // it would fit, but the alarm is on
	s.refused(of(txn(put("a", ""))), ErrNoSpace)
	s.refused(Command{Grant: &Grant{ID: 1, TTLSeconds: 1}}, ErrNoSpace)
	s.fine(of(txn(get("abc"))))
	s.fine(Command{Space: System, Op: &Op{Put: &PutOp{Key: "a"}}})
	s.fine(of(Op{Delete: &DeleteOp{Range: Range{Key: "abc"}}}))
	s.fine(Command{Compact: &Compact{Revision: s.m.user.revision}})
	if !s.m.View().Stats(User).Full {
		t.Error("the alarm went out by itself")
	}
	s.fine(Command{Disarm: &Disarm{}})
	s.fine(of(put("a", "")))
}

// A command of a leader counts in its own term only.
func TestFence(t *testing.T) {
	s := newScript(t)
	s.fine(Command{Grant: &Grant{ID: 1, TTLSeconds: 1}})
	s.fine(of(Op{Put: &PutOp{Key: "a", Lease: 1}}))
	s.term = 2
	s.refused(Command{Term: 1, Revoke: &Revoke{ID: 1}}, ErrFenced)
	if s.value("a") == "–" {
		t.Fatal("invariant fence: a leader that was deposed ended a lease")
	}
	s.fine(Command{Term: 2, Revoke: &Revoke{ID: 1}})
	if s.value("a") != "–" {
		t.Error("the key outlived its lease")
	}
}

func TestExactlyOnce(t *testing.T) {
	s := newScript(t)
	id := ClientID{1}
	by := func(sequence, done uint64, op Op) Command {
		return Command{Client: &Client{ID: id, Sequence: sequence, Done: done}, Op: &op}
	}
	s.fine(Command{Client: &Client{ID: id}, Register: &Register{}})
	prev := func(key, value string) Op { return Op{Put: &PutOp{Key: key, Value: []byte(value), Prev: true}} }
	first := s.fine(by(1, 0, prev("a", "1")))
	third := s.fine(by(3, 0, prev("a", "3"))) // out of order
	s.m = restored(t, s.m.View())
	s.fine(Command{Client: &Client{ID: id}, Register: &Register{}}) // again
	for sequence, want := range map[uint64]Result{1: first, 3: third} {
		got := s.do(by(sequence, 0, prev("a", "again")))
		want.Repeated = true
		if !reflect.DeepEqual(got, want) {
			t.Errorf("invariant once: call %d: %+v, want %+v", sequence, got, want)
		}
	}
	if v := s.value("a"); v != "3" {
		t.Errorf("a is %q", v)
	}
	s.fine(by(2, 0, put("b", "2")))
	s.fine(by(4, 3, put("b", "4"))) // forgets the results of 1 to 3
	s.refused(by(2, 0, put("b", "again")), ErrResultGone)
	s.refused(by(9, 0, put("", "")), ErrEmptyKey)
	if r := s.do(by(9, 0, put("c", "good"))); !errors.Is(r.Err, ErrEmptyKey) || !r.Repeated {
		t.Errorf("a refusal counts as well: %+v", r)
	}
	big := s.fine(by(5, 0, put("big", strings.Repeat("x", maxKeptBytes))))
	s.fine(by(6, 0, Op{Range: &RangeOp{Range: Range{Key: "big"}}}))
	if r := s.do(by(6, 0, Op{Range: &RangeOp{Range: Range{Key: "big"}}})); !errors.Is(r.Err, ErrResultGone) || !r.Repeated || r.Revision != big.Revision {
		t.Errorf("a result that is too large to keep: %v", r.Err)
	}
}

// What is kept for clients is bounded.
func TestClientsAreBounded(t *testing.T) {
	s := newScript(t)
	client := func(n int) ClientID { return ClientID{byte(n), byte(n >> 8)} }
	for n := range MaxClients {
		s.fine(Command{Client: &Client{ID: client(n)}, Register: &Register{}})
	}
	by := func(n int, sequence, done uint64) Command {
		op := put("a", strconv.Itoa(n))
		return Command{Client: &Client{ID: client(n), Sequence: sequence, Done: done}, Op: &op}
	}
	s.fine(by(0, 1, 0)) // 1 is now the one not heard of for longest
	s.fine(Command{Client: &Client{ID: client(MaxClients)}, Register: &Register{}})
	s.refused(by(1, 1, 0), ErrClientUnknown)
	s.fine(by(2, 1, 0))
	for sequence := uint64(2); sequence <= MaxOutstanding; sequence++ {
		s.fine(by(0, sequence, 0))
	}
	s.refused(by(0, MaxOutstanding+1, 0), ErrClientBusy)
	s.fine(by(0, MaxOutstanding+1, 1))
	if got, want := restored(t, s.m.View()).clients.bytes, s.m.clients.bytes; got != want || got <= 0 {
		t.Errorf("%d bytes after a restore, %d before", got, want)
	}
}

// Chunks of the journal and compactions in any relation; a snapshot makes other
// chunks.
func TestJournal(t *testing.T) {
	for _, restore := range []bool{false, true} {
		t.Run(fmt.Sprint("restored ", restore), func(t *testing.T) { testJournal(t, restore) })
	}
}

func testJournal(t *testing.T, restore bool) {
	s := newScript(t)
	const n = 3*chunkWrites + 7
	for i := range n {
		s.fine(of(put("k", strconv.Itoa(i))))
	}
	for _, at := range []int64{1, 2, chunkWrites, chunkWrites + 1, chunkWrites + 2, 2 * chunkWrites, n + 1} {
		if at > 1 {
			s.fine(Command{Compact: &Compact{Revision: at}})
		}
		v := s.m.View()
		other := restored(t, v)
		if restore {
			s.m = other
		}
		for _, v := range []*View{v, other.View()} {
			next := max(at, 2)
			if err := v.Since(User, Range{Key: "k"}, at, func(e Event) bool {
				if e.KV.Mod != next {
					t.Fatalf("invariant history: compacted at %d: revision %d, want %d", at, e.KV.Mod, next)
				}
				next++
				return true
			}); err != nil || next != n+2 {
				t.Fatalf("invariant history: compacted at %d: up to %d, %v", at, next-1, err)
			}
			if err := v.Since(User, Range{Key: "k"}, at-1, func(Event) bool { return true }); at > 1 && !errors.Is(err, ErrCompacted) {
				t.Fatalf("before the compaction at %d: %v", at, err)
			}
		}
	}
}

func TestEval(t *testing.T) {
	s := newScript(t)
	s.fine(of(put("a", "1")))
	v := s.m.View()
	if _, err := v.Eval(User, txn(put("a", "2"))); !errors.Is(err, ErrInvalid) {
		t.Errorf("a write: %v", err)
	}
	r, err := v.Eval(User, Op{Txn: &TxnOp{Compares: []Compare{{Range: Range{Key: "a"}, Target: TargetMod, Number: 2}}, Then: []Op{get("a")}}})
	if err != nil || !r.Txn.Succeeded || len(r.Txn.Results[0].Range.KVs) != 1 || v.Digest() != s.m.View().Digest() {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestHashAt(t *testing.T) {
	s, o := newScript(t), newScript(t)
	for _, m := range []*script{s, o} {
		m.fine(of(put("a", "1")))
		m.fine(of(put("b", "2")))
	}
	s.fine(of(put("a", "3")))
	one, at, _, err := s.m.View().HashAt(User, 3)
	two, _, _, err2 := o.m.View().HashAt(User, 0)
	now, _, _, _ := s.m.View().HashAt(User, 0)
	if err != nil || err2 != nil || one != two || at != 3 || one == now {
		t.Errorf("%d and %d at %d, %d now: %v, %v", one, two, at, now, err, err2)
	}
}

func TestBackup(t *testing.T) {
	s := newScript(t)
	for i := range 50 {
		s.fine(of(put(strings.Repeat("k", i+1), "1")))
		var b []byte
		if err := s.m.View().Backup(func(p []byte, remaining uint64) error {
			b = append(b, p...)
			if done := len(b)%backupBlock == 32; done != (remaining == 0) && remaining < 32 {
				t.Errorf("%d bytes remain after %d", remaining, len(b))
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		m, err := ReadBackup(b)
		if err != nil || m.View().Digest() != s.m.View().Digest() || len(b)%backupBlock != 32 {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		for _, at := range []int{0, 9, 40, len(b) - 40, len(b) - 1} {
			b[at] ^= 1
			if _, err := ReadBackup(b); !errors.Is(err, ErrDamaged) {
				t.Fatalf("byte %d of %d is another one: %v", at, len(b), err)
			}
			b[at] ^= 1
		}
		if _, err := ReadBackup(b[:len(b)-1]); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	}
}

func FuzzDecodeCommands(f *testing.F) {
	op := txn(put("a", "1"), get("b"), Op{Delete: &DeleteOp{Range: Range{Key: "c", End: FromKey}}})
	f.Add(EncodeCommands([]Command{{Space: User, Client: &Client{Sequence: 3}, Op: &op}, {Space: System, Grant: &Grant{ID: 1, TTLSeconds: 9}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		commands, err := DecodeCommands(data)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeCommands(EncodeCommands(commands))
		if err != nil || !reflect.DeepEqual(again, commands) {
			t.Fatalf("%+v, %v, want %+v", again, err, commands)
		}
		m := NewMachine()
		m.Apply(1, 1, commands)
		restored(t, m.View())
	})
}

func FuzzDecode(f *testing.F) {
	s := &script{t: nil, m: NewMachine(), term: 1}
	s.m.Apply(1, 1, []Command{of(put("a", "1")), {Space: User, Grant: &Grant{ID: 1, TTLSeconds: 1}}, {Space: User, Client: &Client{ID: ClientID{1}}, Register: &Register{}}})
	var b []byte
	_ = s.m.View().Encode(func(p []byte) error { b = append(b, p...); return nil })
	f.Add(b)
	f.Add([]byte("\x0100000\x00\x02\x000\x000\x00000\x00\x00\x00\x00")) // a lease twice
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := Decode(data); err == nil {
			restored(t, m.View())
		} else if !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}
