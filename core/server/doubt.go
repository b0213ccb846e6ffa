package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fairlead/fairlead/core/server/serverpb"
)

// doubt is whether a node of a static set with a new data directory was a server
// before. Its id is its rank: with an empty log it could vote once more in a term, and
// be counted for what it confirmed and lost.
//
// Nobody can know for sure but all the others together, and a set has to begin without
// some of them. So those that answer are believed, and those that do not are waited
// for a while.
type doubt struct {
	self  Peer
	id    uint64
	left  map[string]Peer // others that did not answer yet
	until time.Time       // they are waited for; zero: it has not begun
	next  time.Time       // to ask
	text  string          // for people
	said  bool
}

const (
	doubtFor   = 3 * time.Second
	doubtRetry = 200 * time.Millisecond
	// doubtAgain is how long after somebody knew this server all are asked again.
	doubtAgain = 10 * time.Second
)

func newDoubt(cfg *Config) *doubt {
	d := &doubt{id: newIdentity(cfg, nil).Server, text: "its data directory is new: it asks the others of raft.peers whether it was a server before"}
	d.forget(cfg)
	return d
}

// forget has all asked again.
func (d *doubt) forget(cfg *Config) {
	d.left, d.until = map[string]Peer{}, time.Time{}
	for _, p := range cfg.Set {
		if p.Name == cfg.Node {
			d.self = p
			continue
		}
		d.left[p.Name] = p
	}
}

// resolve asks those that are left, and begins when there is no doubt any more.
func (p *Part) resolve(ctx context.Context, now time.Time) {
	d := p.doubt
	if now.Before(d.next) {
		return
	}
	if d.until.IsZero() {
		d.until = now.Add(doubtFor)
	}
	d.next = now.Add(doubtRetry)
	answers := p.calls.known(ctx, d)
	for name, known := range answers {
		delete(d.left, name)
		if !known {
			continue
		}
		d.text = fmt.Sprintf("its data directory is new, and %s knows it as a server of the set: with an empty log it could lose what was acknowledged; bring the old directory back, or save a backup at another server (`fairlead snapshot save`) and restore it on all of them (`fairlead snapshot restore`)", name)
		if !d.said {
			d.said = true
			p.cfg.Log.Error("this node is no server of the store: it forgot that it was one", "why", d.text)
		}
		p.await(d.text)
		d.forget(&p.cfg.Config)
		d.next = now.Add(doubtAgain)
		return
	}
	if ctx.Err() != nil || len(d.left) > 0 && time.Now().Before(d.until) {
		return
	}
	p.doubt = nil
	p.await("")
	id, err := identify(&p.cfg.Config)
	if err == nil {
		err = p.open(id)
	}
	if err != nil {
		p.await(err.Error())
		p.cfg.Log.Error("this node is no server of the store", "error", err)
	}
}

// known asks nodes of a static set whether they know a server; who does not answer is
// not in the result.
func (c *calls) known(ctx context.Context, d *doubt) map[string]bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	out := map[string]bool{}
	for name, peer := range d.left {
		asking.Go(func() {
			conn, err := c.at(name, peer.Addr.String())
			if err != nil {
				return
			}
			r, err := serverpb.NewServerClient(conn).Known(ctx, &serverpb.KnownRequest{Name: d.self.Name, Id: d.id})
			if err == nil {
				mu.Lock()
				out[name] = r.GetKnown()
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return out
}
