package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/disk"
	"github.com/fairlead/fairlead/core/store"
)

// recoveredDir is where the log of a new group is made, before it takes the place of
// the old one.
const recoveredDir = "raft.recovered"

// ErrSet refuses what is not done with a static set.
var ErrSet = errors.New("server: a static set keeps its servers")

// RecoverConfig says which server is to become a group of its own.
type RecoverConfig struct {
	// Node, Dir and Set are Config's.
	Node, Dir string
	Set       []Peer
	// Try changes nothing, and says what would come of it.
	Try bool
}

// Recovered is what came of it.
type Recovered struct {
	Was, Is      Identity
	View         *store.View
	Commit, Last uint64 // raft.Salvaged's
	Aside        string // where the old log is kept
}

// Recover makes of a server that does not run a new group of this server alone, which
// goes on from what that has. It is for a group of which most servers are lost for
// good. The others are no part of the new group: its id is another one. Its errors are
// those of raft.Salvage, ErrOther and ErrSet.
//
// The old log is put aside. A crash in between is made up for by the next start, or by
// the same again.
func Recover(c RecoverConfig) (Recovered, error) {
	if len(c.Set) > 0 {
		return Recovered{}, fmt.Errorf("%w, and most of them always have to run: to go on with this one alone, take raft.peers out of its configuration first; or restore a backup on all of them", ErrSet)
	}
	was, known, err := ReadIdentity(c.Dir)
	switch {
	case err != nil:
		return Recovered{}, err
	case !known || !was.Begun || was.Clearing:
		return Recovered{}, fmt.Errorf("%w: %s has no state of one", raft.ErrNothing, c.Dir)
	case was.Node != c.Node && len(was.Set) > 0:
		return Recovered{}, fmt.Errorf("%w: %s says that it is of node %s, and node.name is %s", ErrOther, filepath.Join(c.Dir, identityFile), was.Node, c.Node)
	}
	if err := was.finish(c.Dir); err != nil {
		return Recovered{}, err
	}
	out := Recovered{Was: was, Aside: filepath.Join(c.Dir, asideDir(was.Cluster))}
	found, err := salvage(c.Dir, was)
	if err != nil {
		return out, err
	}
	forget(found.Machine)
	out.View, out.Commit, out.Last = found.Machine.View(), found.Commit, found.Last
	if c.Try {
		return out, nil
	}
	id := Identity{Cluster: drawID(), Server: drawID(), Node: c.Node, Begun: true, Replaces: was.Cluster}
	id.Voters = []uint64{id.Server}
	out.Is = id
	if err := create(filepath.Join(c.Dir, recoveredDir), id, found.Machine); err != nil {
		return out, err
	}
	out.View = found.Machine.View()
	if err := id.write(c.Dir); err != nil { // from here on it is the new server
		return out, err
	}
	return out, id.finish(c.Dir)
}

func asideDir(group uint64) string { return raftDir + ".of-" + formatID(group) }

func salvage(dir string, id Identity) (raft.Salvaged, error) {
	d, sizes, err := openDisk(dir)
	if err != nil {
		return raft.Salvaged{}, err
	}
	return raft.Salvage(raft.Config{ID: id.Server, Cluster: formatID(id.Cluster), Disk: d, Sizes: sizes})
}

// create makes the log of a group of one; what an attempt before left goes.
func create(path string, id Identity, begin *store.Machine) error {
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	d, err := disk.OpenOS(path)
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return raft.Create(raft.Config{ID: id.Server, Cluster: formatID(id.Cluster), Voters: id.voters(), Disk: d}, begin)
}

// finish puts the log of the group that this server makes in the place of that of
// the one that it replaces, unless that was done.
func (id *Identity) finish(dir string) error {
	if dir == "" || id.Replaces == 0 {
		return nil
	}
	raftPath, made := filepath.Join(dir, raftDir), filepath.Join(dir, recoveredDir)
	aside := filepath.Join(dir, asideDir(id.Replaces))
	if _, err := os.Stat(made); err == nil {
		if err := os.Rename(raftPath, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("server: the old log is not put aside: %w", err)
		}
		if err := os.Rename(made, raftPath); err != nil {
			return fmt.Errorf("server: %w", err)
		}
		if err := syncDir(dir); err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("server: %w", err)
	}
	id.Replaces = 0
	return id.write(dir)
}

// syncDir makes renames last over a crash.
func syncDir(dir string) error {
	if err := durable.SyncNames(dir); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}
