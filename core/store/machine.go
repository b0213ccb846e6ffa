package store

// Machine is the state. One goroutine owns it.
type Machine struct {
	user, system *space
	clients      *clients
	index, term  uint64 // of the last entry applied
}

// NewMachine returns one that nothing was applied to.
func NewMachine() *Machine {
	return &Machine{user: newSpace(), system: newSpace(), clients: newClients()}
}

// Applied returns index and term of the last entry applied, 0 and 0 if none was.
func (m *Machine) Applied() (index, term uint64) { return m.index, m.term }

// Rebase makes the state the beginning of another log, as of the entry with this
// index and term. The clients of the old log are forgotten.
func (m *Machine) Rebase(index, term uint64) {
	m.index, m.term, m.clients = index, term, newClients()
}

// Apply carries out the commands of one committed entry, which is the next one:
// what it does depends on nothing but what was applied before.
// Invariant: index rises by one with each call, but for entries that hold no
// command.
func (m *Machine) Apply(index, term uint64, commands []Command) []Result {
	m.index, m.term = index, term
	results := make([]Result, len(commands))
	for i := range commands {
		results[i] = m.once(&commands[i])
	}
	return results
}

// once applies a command unless it was applied before.
func (m *Machine) once(c *Command) Result {
	s := m.space(c.Space)
	if s == nil {
		return Result{Err: ErrInvalid}
	}
	switch {
	case c.Client == nil:
		return m.apply(s, c)
	case c.Register != nil:
		m.clients.register(c.Client.ID)
		return Result{Revision: s.revision}
	}
	if r, known := m.clients.look(*c.Client); known {
		return r
	}
	r := m.apply(s, c)
	m.clients.note(*c.Client, r)
	return r
}

func (m *Machine) apply(s *space, c *Command) Result {
	var r Result
	if c.Term != 0 && c.Term != m.term {
		r.Err = ErrFenced
	} else {
		r = s.apply(c)
	}
	r.Revision = s.revision
	if r.Err != nil {
		return Result{Err: r.Err, Revision: r.Revision}
	}
	return r
}

func (m *Machine) space(k Keyspace) *space {
	switch k {
	case User:
		return m.user
	case System:
		return m.system
	}
	return nil
}

// apply carries out a command on this space.
func (s *space) apply(c *Command) Result {
	switch {
	case c.Op != nil:
		return s.applyOp(*c.Op)
	case c.Compact != nil:
		return Result{Err: s.compact(c.Compact.Revision)}
	case c.Grant != nil:
		return Result{Err: s.grant(*c.Grant)}
	case c.Revoke != nil:
		return s.revoke(c.Revoke.ID)
	case c.Disarm != nil:
		s.full = false
		return Result{}
	case c.Quota != nil:
		if c.Quota.Bytes <= 0 {
			return Result{Err: ErrInvalid}
		}
		s.quota = c.Quota.Bytes
		return Result{}
	}
	return Result{Err: ErrInvalid}
}

func (s *space) applyOp(op Op) Result {
	if err := s.check(op); err != nil {
		return Result{Err: err}
	}
	if cost := op.cost(); cost > 0 && !s.room(cost) {
		return Result{Err: ErrNoSpace}
	}
	w := writer{s: s, revision: s.revision + 1}
	r := Result{Op: w.do(op)}
	w.finish()
	return r
}

// finish makes the writes a revision, if there were any.
func (w *writer) finish() {
	if w.writes > 0 {
		w.s.revision = w.revision
	}
}

// room reports whether so many bytes more are allowed; if not, the alarm is on,
// until somebody ends it.
func (s *space) room(bytes int64) bool {
	if s.bytes+bytes > s.quota {
		s.full = true
	}
	return !s.full
}

// cost is what an operation may add to the bytes of the space, at most.
func (o Op) cost() int64 {
	switch {
	case o.Put != nil:
		return versionBytes + int64(len(o.Put.Key)+len(o.Put.Value))
	case o.Txn != nil:
		var branches [2]int64
		for i, list := range [][]Op{o.Txn.Then, o.Txn.Else} {
			for _, inner := range list {
				branches[i] += inner.cost()
			}
		}
		return max(branches[0], branches[1])
	}
	return 0
}

func (s *space) grant(g Grant) error {
	switch {
	case g.ID == 0:
		return ErrInvalid
	case g.TTLSeconds <= 0 || g.TTLSeconds > MaxTTLSeconds:
		return ErrLeaseTTL
	case !s.room(versionBytes):
		return ErrNoSpace
	}
	if _, there := s.leases.Get(g.ID); there {
		return ErrLeaseExists
	}
	s.addLease(g.ID, g.TTLSeconds)
	return nil
}

// revoke ends a lease and deletes its keys, in one revision.
func (s *space) revoke(id LeaseID) Result {
	l, ok := s.leases.Get(id)
	if !ok {
		return Result{Err: ErrLeaseNotFound}
	}
	s.leases.Delete(id)
	s.bytes -= versionBytes
	s.digest.remove(digestOfLease(id, l.ttlSeconds))
	w := writer{s: s, revision: s.revision + 1}
	l.keys.Scan(func(key string, _ struct{}) bool {
		w.drop(key)
		return true
	})
	w.finish()
	return Result{}
}
