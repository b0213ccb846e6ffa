package replica

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/fairlead/fairlead/core/store"
)

// caller is a client of the group: it has one call at a time, which it makes
// anew, at any server, until there is an answer.
type caller struct {
	s        *sim
	id       store.ClientID
	number   int
	known    bool // it is registered
	sequence uint64
	now      *call
	patience int
	ending   bool
}

// call is a put or a get of one key.
type call struct {
	by       *caller
	sequence uint64 // of a put or a registration
	register bool
	put      bool
	key      string
	value    string
	began    int64
	over     bool
}

const keys = 3

func newCaller(s *sim, number int) *caller {
	return &caller{s: s, number: number, id: store.ClientID{byte(number + 1)}}
}

func (c *caller) idle() bool { return c.now == nil }

// step makes a call, or tries the one under way again.
func (c *caller) step() {
	if c.now == nil {
		if c.ending {
			return
		}
		c.begin()
		c.try()
		return
	}
	if c.patience--; c.patience <= 0 {
		c.try()
	}
}

func (c *caller) begin() {
	c.now = &call{by: c, began: c.s.now, key: string(rune('a' + c.s.r.IntN(keys)))}
	switch {
	case !c.known:
		c.now.register = true
	case c.s.r.IntN(2) == 0:
		c.sequence++
		c.now.put, c.now.sequence = true, c.sequence
		c.now.value = fmt.Sprintf("%d/%d", c.number, c.sequence)
	}
}

func (c *caller) try() {
	c.patience = 5 + c.s.r.IntN(30)
	v := c.s.servers[c.s.pick()]
	if !v.up {
		return
	}
	if !c.now.put && !c.now.register {
		v.reads[v.replica.Read()] = c.now
		v.drain()
		return
	}
	command := store.Command{Space: store.User, Client: &store.Client{ID: c.id, Sequence: c.now.sequence, Done: max(c.now.sequence, 1) - 1}}
	if c.now.register {
		command.Register = &store.Register{}
	} else {
		command.Op = &store.Op{Txn: &store.TxnOp{Then: []store.Op{
			{Put: &store.PutOp{Key: c.now.key, Value: []byte(c.now.value)}},
			{Put: &store.PutOp{Key: "once/" + c.now.value}},
		}}}
	}
	if v.replica.Propose(store.EncodeCommands([]store.Command{command})) == nil {
		v.drain()
	}
}

// done is what a server tells that applied a command.
func (s *sim) done(id store.Client, r store.Result) {
	for _, c := range s.clients {
		if c.id != id.ID || c.now == nil || c.now.sequence != id.Sequence || !c.now.put && !c.now.register {
			continue
		}
		if r.Err != nil {
			s.fail("invariant once: client %d, call %d: %v", c.number, id.Sequence, r.Err)
		}
		c.known = true
		c.now.end("")
	}
}

// answer is what a read found.
func (c *call) answer(v *store.View) {
	r, err := v.Range(store.User, store.RangeOp{Range: store.Range{Key: c.key}})
	if err != nil {
		c.by.s.fail("a read: %v", err)
		return
	}
	value := ""
	if len(r.KVs) > 0 {
		value = string(r.KVs[0].Value)
	}
	c.by.s.final = v
	c.end(value)
}

// lost says that a server which was asked is gone.
func (c *call) lost() {
	if c.by.now == c {
		c.by.patience = 0
	}
}

func (c *call) end(value string) {
	if c.over {
		return
	}
	c.over = true
	s := c.by.s
	if c.by.now == c {
		c.by.now = nil
	}
	if c.register {
		return
	}
	if c.put {
		value = c.value
	}
	s.history = append(s.history, porcupine.Operation{
		ClientId: c.by.number, Input: input{c.put, c.key}, Output: value, Call: 2 * c.began, Return: 2*s.now + 1,
	})
}

type input struct {
	put bool
	key string
}

// history is what clients were told.
type history []porcupine.Operation

// check finds out whether one order of all calls explains every answer, whether
// every put that was answered is there, and whether none happened twice.
func (h history) check(s *sim) {
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, in, out any) (bool, any) {
			if in.(input).put {
				return true, out
			}
			return state == out, state
		},
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			byKey := make([][]porcupine.Operation, keys)
			for _, o := range all {
				i := o.Input.(input).key[0] - 'a'
				byKey[i] = append(byKey[i], o)
			}
			return slices.DeleteFunc(byKey, func(l []porcupine.Operation) bool { return len(l) == 0 })
		},
	}
	if got := porcupine.CheckOperationsTimeout(model, h, time.Minute); got != porcupine.Ok {
		s.fail("invariant linearizable: %v", got)
	}
	for _, o := range h {
		if !o.Input.(input).put {
			continue
		}
		r, err := s.final.Range(store.User, store.RangeOp{Range: store.Range{Key: "once/" + o.Output.(string)}})
		switch {
		case err != nil:
			s.fail("%v", err)
		case len(r.KVs) == 0:
			s.fail("invariant durable: the put of %v was answered and is not there", o.Output)
		case r.KVs[0].Version != 1:
			s.fail("invariant once: the put of %v happened %d times", o.Output, r.KVs[0].Version)
		}
	}
	if len(h) < 5 && s.moves == nil { // members that come and go may keep everybody waiting
		s.fail("the simulation did next to nothing: %d calls", len(h))
	}
}
