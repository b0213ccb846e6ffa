package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/model"
)

const (
	peersFile     = "peers.json"
	peersFileSize = 8 << 20
	peersDebounce = time.Second // between two writes
	peersSettle   = 100 * time.Millisecond
	peersRetry    = time.Minute     // after a write that failed
	peersWarn     = 5 * time.Minute // between two warnings about one trouble
)

// peer is a member worth asking after a restart.
type peer struct {
	ID   model.NodeID   `json:"id"`
	Name string         `json:"name"`
	Addr netip.AddrPort `json:"addr"`
}

// peersJSON is the content of peers.json.
type peersJSON struct {
	Peers []peer `json:"peers"`
}

// readPeers returns the peers of an earlier run; none if there is no file. A
// damaged file is set aside: it costs contacts, not identity.
func readPeers(path string) ([]peer, error) {
	data, err := durable.Read(path, peersFileSize)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("membership: peers file %s cannot be read: %w: going on without it; name a contact in cluster.join", path, err)
	}
	var content peersJSON
	err = json.Unmarshal(data, &content)
	for _, p := range content.Peers {
		if err == nil && (p.ID == 0 || !p.Addr.IsValid()) {
			err = fmt.Errorf("peer %q has no id or no address", p.Name)
		}
	}
	if err != nil {
		aside := path + ".damaged"
		return nil, fmt.Errorf("membership: peers file %s is damaged: %w: set aside as %s, going on without it; name a contact in cluster.join", path, errors.Join(err, os.Rename(path, aside)), aside)
	}
	return content.Peers, nil
}

// peersOf lists whom to ask after a restart: all that did not say good-bye,
// and those of earlier runs that were not heard of yet.
func peersOf(s *Snapshot, earlier []peer) []peer {
	out := make([]peer, 0, len(s.Members))
	ids := make(map[model.NodeID]bool, len(s.Members))
	addrs := map[netip.AddrPort]bool{}
	for i := range s.Members {
		m := &s.Members[i]
		ids[m.ID] = true
		if m.Value.State.Live() {
			addrs[m.Addr] = true
		}
		if !m.Self && m.Value.State != model.StateLeft {
			out = append(out, peer{m.ID, m.Name, m.Addr})
		}
	}
	for _, p := range earlier {
		if !ids[p.ID] && !addrs[p.Addr] {
			out = append(out, p)
		}
	}
	return out
}

// unheard counts the peers of the last run that are not known to be dead, and
// the contacts that were named.
func unheard(s *Snapshot, earlier []peer, named int) int {
	dead := map[model.NodeID]bool{}
	for i := range s.Members {
		if len(earlier) > 0 && !s.Members[i].Value.State.Live() {
			dead[s.Members[i].ID] = true
		}
	}
	for _, p := range earlier {
		if !dead[p.ID] {
			named++
		}
	}
	return named
}

// peersKeeper writes the peers file when the table changed.
type peersKeeper struct {
	path    string
	log     *slog.Logger
	latest  func() *Snapshot
	earlier []peer
	forget  time.Duration // earlier peers not heard of by then are dropped
	changed chan struct{} // capacity 1
	written []byte
	warned  time.Time // zero while writing works
	now     func() time.Time
}

// newPeersKeeper reads the file in dir and returns a keeper whose run writes
// it. Trouble with the file is logged, never fatal.
func newPeersKeeper(dir string, latest func() *Snapshot, forget time.Duration, now func() time.Time, log *slog.Logger) *peersKeeper {
	k := &peersKeeper{
		path: filepath.Join(dir, peersFile), log: log, latest: latest,
		forget: forget, now: now, changed: make(chan struct{}, 1),
	}
	peers, err := readPeers(k.path)
	if err != nil {
		log.Warn("peers file not used", "error", err)
	}
	k.earlier = peers
	return k
}

// touch says that the table may have changed. It does not wait.
func (k *peersKeeper) touch() {
	select {
	case k.changed <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then once more.
func (k *peersKeeper) run(ctx context.Context) {
	start := k.now()
	var wrote time.Time
	pause := time.NewTimer(0)
	defer pause.Stop()
	<-pause.C
	changed := k.changed
	for {
		select {
		case <-changed:
			changed = nil
			// Soon after a quiet time, so that an early crash forgets nobody;
			// not often while the table is busy.
			pause.Reset(max(peersSettle, peersDebounce-k.now().Sub(wrote)))
			continue
		case <-pause.C:
			changed = k.changed
		case <-ctx.Done():
		}
		if k.now().Sub(start) > k.forget {
			k.earlier = nil
		}
		k.write()
		wrote = k.now()
		if ctx.Err() != nil {
			return
		}
		if !k.warned.IsZero() {
			pause.Reset(peersRetry)
		}
	}
}

func (k *peersKeeper) write() {
	data, err := json.MarshalIndent(peersJSON{peersOf(k.latest(), k.earlier)}, "", " ")
	if err == nil && string(data) != string(k.written) {
		err = durable.Replace(k.path, append(data, '\n'))
	}
	switch {
	case err == nil && !k.warned.IsZero():
		k.log.Info("peers file is written again", "file", k.path)
		fallthrough
	case err == nil:
		k.written, k.warned = data, time.Time{}
	case k.warned.IsZero() || k.now().Sub(k.warned) >= peersWarn:
		k.warned = k.now()
		k.log.Warn("peers file cannot be written: after a restart this node finds its cluster by cluster.join only; make the file writable and free some space",
			"file", k.path, "error", err)
	}
}
