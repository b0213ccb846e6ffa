package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/fairlead/fairlead/core/formation"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/server/serverpb"
)

// ErrWaitsForNone refuses to give up what is not waited for.
var ErrWaitsForNone = errors.New("server: this node waits for no cluster that could be given up")

// do has the goroutine do something, and waits for that.
func (p *Part) do(ctx context.Context, f func()) error {
	did := make(chan struct{})
	select {
	case p.asks <- func() { f(); close(did) }:
	case <-p.ended:
		return ErrNoServer
	case <-ctx.Done():
		return ctx.Err()
	}
	<-did
	return nil
}

// Transfer hands the leadership to another voter, whoever has it. The error says why
// it stayed.
func (p *Part) Transfer(ctx context.Context, to uint64) error {
	s := p.Server()
	if s == nil {
		return ErrNoServer
	}
	if s.State().Leads() {
		return s.Host.Transfer(ctx, to)
	}
	leads, err := p.calls.leader(s)
	if err != nil {
		return err
	}
	_, err = leads.Transfer(ctx, &serverpb.TransferRequest{Group: s.identity.Cluster, To: to})
	if err != nil {
		return errors.New(status.Convert(err).Message())
	}
	return nil
}

// Gone reports whether a server was removed and is not needed any more, as far as
// this one knows or, of itself, hears of others: nobody tells it.
func (p *Part) Gone(ctx context.Context, s *Server, id uint64) bool {
	if _, unneeded := raft.RetiredIn(s.View(), id); unneeded {
		return true
	}
	return id == s.ID() && p.calls.retired(ctx, s.identity, p.cfg.neighbours())
}

// Depart says whether the node leaves, so that it does not become another server once
// this one is removed.
func (p *Part) Depart(leaves bool) { p.departs.Store(leaves) }

// Retire ends the server, which was removed. Clients are answered by others from then
// on.
func (p *Part) Retire(ctx context.Context) {
	_ = p.do(ctx, func() { p.shut(ctx) }) // else it ended already
}

// Recover gives a cluster up that this node waits for, 0 for the one that it does,
// and returns which that was. Its errors wrap formation.ErrRefused and
// ErrWaitsForNone.
func (p *Part) Recover(ctx context.Context, cluster formation.ClusterID) (formation.ClusterID, error) {
	var err error
	if ended := p.do(ctx, func() { cluster, err = p.giveUp(cluster) }); ended != nil {
		return 0, ended
	}
	return cluster, err
}

func (p *Part) giveUp(cluster formation.ClusterID) (formation.ClusterID, error) {
	if p.formation == nil {
		return 0, fmt.Errorf("%w: it forms none: it is alone, or of a static set", ErrWaitsForNone)
	}
	if cluster == 0 {
		if cluster = p.formation.Waits(); cluster == 0 {
			why := p.formation.Awaits()
			if own := p.formation.Cluster(); own != 0 {
				why = fmt.Sprintf("it belongs to cluster %s; if most servers of that are lost for good, stop this agent and see `fairlead raft recover --help`", own)
			}
			return 0, fmt.Errorf("%w: %s", ErrWaitsForNone, why)
		}
	}
	if err := p.formation.Recover(time.Now(), cluster); err != nil {
		return 0, err
	}
	if err := p.form(); err != nil { // to disk first
		return 0, err
	}
	p.cfg.Log.Warn("a cluster that this node waited for was given up", "cluster", cluster.String())
	if p.known && p.own.Cluster == uint64(cluster) {
		p.shut(context.Background())
		p.known = false
		return cluster, dropServer(p.cfg.Dir)
	}
	return cluster, nil
}

// keeps reports whether a node still is the server that its disk says, and finishes
// giving it up if not.
func keeps(dir string, id Identity) (bool, error) {
	rec, err := readFormation(dir)
	own := formation.ClusterID(id.Cluster)
	if err != nil || rec.Formed != nil || rec.Seen == own || !slices.Contains(rec.Lost, own) {
		return true, err
	}
	return false, dropServer(dir)
}

// inOrFor reports whether a record is of a server that is in a cluster, or waits to be
// added to it.
func inOrFor(rec formation.Record, cluster formation.ClusterID) bool {
	if rec.Formed != nil {
		return rec.Formed.Cluster == cluster
	}
	return rec.Yes == nil && rec.Seen == cluster
}

// begunAnew is the record of a server that was made one of another cluster, by
// Recover or Restore: whoever did that gave up the one before.
func begunAnew(rec formation.Record, cluster formation.ClusterID) formation.Record {
	out := formation.Record{Formed: &formation.Ballot{Cluster: cluster}, Lost: slices.Clone(rec.Lost)}
	if rec.Formed != nil {
		out.Lost = append(out.Lost, rec.Formed.Cluster)
	}
	return out
}

// dropServer makes a directory that of no server. What says that it is one goes last.
func dropServer(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(dir, raftDir)); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := os.Remove(filepath.Join(dir, identityFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("server: %w", err)
	}
	return syncDir(dir)
}
