package sim

import (
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/swim"
)

// call is one stream under way. It ends once, whatever happens to it: at the
// latest when its time is over.
type call struct {
	world *World
	by    *Process
	swim.Stream
	over bool
}

// open carries out a stream that p wants. Like TCP it loses nothing: packets
// that the network eats cost time instead.
func (w *World) open(p *Process, s swim.Stream) {
	c := &call{world: w, by: p, Stream: s}
	for _, f := range s.Frames {
		w.Trace.record(w.now, 'f', p.serial, f)
	}
	w.after(s.Timeout, func() { c.end(swim.StreamFailed) })
	there := w.hostOf[s.To]
	if !passes(p.host, there) || !passes(there, p.host) {
		return
	}
	w.after(w.leg()+w.leg(), func() {
		if w.listens[s.To] == nil && passes(there, p.host) {
			c.end(swim.StreamRefused)
		}
	})
	w.after(w.leg()+w.leg()+w.leg(), c.arrive)
}

// arrive hands the frames to whoever listens at the address.
func (c *call) arrive() {
	peer := c.world.listens[c.To]
	if peer == nil || c.over || !passes(c.by.host, peer.host) {
		return
	}
	peer.whenAwake(func() { c.serve(peer) })
}

// serve is the peer's side: it takes all frames and answers.
func (c *call) serve(peer *Process) {
	w := c.world
	var replies [][]byte
	for _, f := range c.Frames {
		reply, err := w.serve(peer, f)
		if err != nil {
			w.after(w.leg(), func() { c.end(swim.StreamFailed) })
			return
		}
		for _, r := range reply {
			w.Trace.record(w.now, 'r', peer.serial, r)
			replies = append(replies, slices.Clone(r))
		}
	}
	if w.chance(w.weather.StreamHalf) {
		w.Tally.Count(FaultStreamHalf)
		w.after(w.leg(), func() { c.end(swim.StreamFailed) })
		return
	}
	w.after(w.leg(), func() {
		if passes(peer.host, c.by.host) {
			c.by.whenAwake(func() { c.answered(replies) })
		}
	})
}

// answered hands the peer's frames to the process that opened the stream.
func (c *call) answered(replies [][]byte) {
	for _, r := range replies {
		if c.over || !c.by.running() {
			return
		}
		c.world.frame(c.by, c.Token, c.Kind, r)
	}
	c.end(swim.StreamOK)
}

// end tells the process how the stream ended.
func (c *call) end(how swim.StreamEnd) {
	if c.over {
		return
	}
	c.over = true
	switch how {
	case swim.StreamRefused:
		c.world.Tally.Count(FaultStreamRefused)
	case swim.StreamFailed:
		c.world.Tally.Count(FaultStreamFailed)
	}
	c.by.whenAwake(func() { c.world.closed(c.by, c.Token, how) })
}

// leg is one way of a stream: a lost packet is sent again after 200 ms, then
// 400, as TCP does.
func (w *World) leg() time.Duration {
	d := w.delay()
	for again := 200 * time.Millisecond; again < 2*time.Second && w.chance(w.weather.Loss); again *= 2 {
		d += again
	}
	return d
}
