package store

import "fmt"

// The kinds of commands and operations on the wire.
const (
	kindRegister = 1
	kindOp       = 2
	kindCompact  = 3
	kindGrant    = 4
	kindRevoke   = 5
	kindDisarm   = 6
	kindQuota    = 7

	kindRange  = 1
	kindPut    = 2
	kindDelete = 3
	kindTxn    = 4
)

// EncodeCommands returns the data of a log entry.
func EncodeCommands(commands []Command) []byte {
	b := appendUint(nil, uint64(len(commands)))
	for i := range commands {
		b = appendCommand(b, &commands[i])
	}
	return b
}

// DecodeCommands reads the data of a log entry. Errors wrap ErrDamaged.
func DecodeCommands(data []byte) ([]Command, error) {
	d := decoder{b: data}
	commands := make([]Command, d.count(3))
	for i := range commands {
		commands[i] = d.command()
	}
	if err := d.end(); err != nil {
		return nil, fmt.Errorf("store: a command of %d bytes: %w", len(data), err)
	}
	return commands, nil
}

func appendCommand(b []byte, c *Command) []byte {
	b = append(b, byte(c.Space))
	b = appendUint(b, c.Term)
	b = appendBool(b, c.Client != nil)
	if c.Client != nil {
		b = append(b, c.Client.ID[:]...)
		b = appendUint(b, c.Client.Sequence)
		b = appendUint(b, c.Client.Done)
	}
	switch {
	case c.Register != nil:
		return append(b, kindRegister)
	case c.Op != nil:
		return appendOp(append(b, kindOp), c.Op)
	case c.Compact != nil:
		return appendInt(append(b, kindCompact), c.Compact.Revision)
	case c.Grant != nil:
		return appendInt(appendInt(append(b, kindGrant), int64(c.Grant.ID)), c.Grant.TTLSeconds)
	case c.Revoke != nil:
		return appendInt(append(b, kindRevoke), int64(c.Revoke.ID))
	case c.Disarm != nil:
		return append(b, kindDisarm)
	case c.Quota != nil:
		return appendInt(append(b, kindQuota), c.Quota.Bytes)
	}
	return append(b, 0)
}

func (d *decoder) command() Command {
	c := Command{Space: Keyspace(d.byte()), Term: d.uint()}
	if d.bool() {
		c.Client = &Client{}
		for i := range c.Client.ID {
			c.Client.ID[i] = d.byte()
		}
		c.Client.Sequence, c.Client.Done = d.uint(), d.uint()
	}
	switch kind := d.byte(); kind {
	case kindRegister:
		c.Register = &Register{}
	case kindOp:
		op := d.op(0)
		c.Op = &op
	case kindCompact:
		c.Compact = &Compact{Revision: d.int()}
	case kindGrant:
		c.Grant = &Grant{ID: LeaseID(d.int()), TTLSeconds: d.int()}
	case kindRevoke:
		c.Revoke = &Revoke{ID: LeaseID(d.int())}
	case kindDisarm:
		c.Disarm = &Disarm{}
	case kindQuota:
		c.Quota = &Quota{Bytes: d.int()}
	default:
		d.fail(fmt.Sprintf("a command of kind %d, which this version does not know", kind))
	}
	return c
}

func appendOp(b []byte, op *Op) []byte {
	switch {
	case op.Range != nil:
		r := op.Range
		b = appendRange(append(b, kindRange), r.Range)
		b = appendInt(appendInt(b, r.Revision), r.Limit)
		b = append(b, byte(r.Order), byte(r.Target))
		b = appendBool(appendBool(b, r.KeysOnly), r.CountOnly)
		for _, n := range []int64{r.MinMod, r.MaxMod, r.MinCreate, r.MaxCreate} {
			b = appendInt(b, n)
		}
	case op.Put != nil:
		p := op.Put
		b = appendBytes(appendBytes(append(b, kindPut), p.Key), p.Value)
		b = appendInt(b, int64(p.Lease))
		b = appendBool(appendBool(appendBool(b, p.Prev), p.KeepValue), p.KeepLease)
	case op.Delete != nil:
		b = appendBool(appendRange(append(b, kindDelete), op.Delete.Range), op.Delete.Prev)
	case op.Txn != nil:
		b = appendUint(append(b, kindTxn), uint64(len(op.Txn.Compares)))
		for _, c := range op.Txn.Compares {
			b = appendRange(b, c.Range)
			b = append(b, byte(c.Target), byte(c.Relation))
			b = appendBytes(appendInt(b, c.Number), c.Value)
		}
		for _, branch := range [][]Op{op.Txn.Then, op.Txn.Else} {
			b = appendUint(b, uint64(len(branch)))
			for i := range branch {
				b = appendOp(b, &branch[i])
			}
		}
	default:
		b = append(b, 0)
	}
	return b
}

func (d *decoder) op(depth int) Op {
	if depth > MaxTxnOps {
		d.fail("transactions are too deep")
		return Op{}
	}
	switch kind := d.byte(); kind {
	case kindRange:
		r := &RangeOp{Range: d.keyRange(), Revision: d.int(), Limit: d.int(), Order: Order(d.byte()), Target: Target(d.byte()), KeysOnly: d.bool(), CountOnly: d.bool()}
		r.MinMod, r.MaxMod, r.MinCreate, r.MaxCreate = d.int(), d.int(), d.int(), d.int()
		return Op{Range: r}
	case kindPut:
		return Op{Put: &PutOp{Key: d.string(), Value: d.bytes(), Lease: LeaseID(d.int()), Prev: d.bool(), KeepValue: d.bool(), KeepLease: d.bool()}}
	case kindDelete:
		return Op{Delete: &DeleteOp{Range: d.keyRange(), Prev: d.bool()}}
	case kindTxn:
		t := &TxnOp{Compares: list(d, 6, func() Compare {
			return Compare{Range: d.keyRange(), Target: Target(d.byte()), Relation: Relation(d.byte()), Number: d.int(), Value: d.bytes()}
		})}
		t.Then = list(d, 1, func() Op { return d.op(depth + 1) })
		t.Else = list(d, 1, func() Op { return d.op(depth + 1) })
		return Op{Txn: t}
	default:
		d.fail(fmt.Sprintf("an operation of kind %d, which this version does not know", kind))
		return Op{}
	}
}

func appendRange(b []byte, r Range) []byte { return appendBytes(appendBytes(b, r.Key), r.End) }

func (d *decoder) keyRange() Range { return Range{Key: d.string(), End: d.string()} }

// list reads a list whose elements take at least size bytes.
func list[T any](d *decoder, size int, read func() T) []T {
	n := d.count(size)
	if n == 0 {
		return nil
	}
	out := make([]T, 0, n)
	for range n {
		if d.err != nil {
			return nil
		}
		out = append(out, read())
	}
	return out
}
