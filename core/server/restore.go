package server

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/fairlead/fairlead/core/control"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/store"
)

// RestoreConfig says which server is to begin with a backup.
type RestoreConfig struct {
	// Cluster, Node, Dir and Set are Config's. All servers of a set restore the
	// same backup.
	Cluster, Node, Dir string
	Set                []Peer
	Backup             []byte // as store.View.Backup made it
}

// Restored is what came of it.
type Restored struct {
	Identity Identity
	View     *store.View
}

// Restore makes the data directory of a server of a new group that begins with
// what a backup has. Nodes of the group that the backup is of are no part of it.
// Its errors wrap store.ErrDamaged, and raft.ErrHasState if the directory is one
// of a server.
func Restore(c RestoreConfig) (Restored, error) {
	cfg := Config{Cluster: c.Cluster, Node: c.Node, Dir: c.Dir, Set: c.Set}
	if c.Dir == "" {
		return Restored{}, errors.New("server: a backup is restored to a data directory, and there is none")
	}
	if !cfg.hasItself() {
		return Restored{}, cfg.notOne()
	}
	file := filepath.Join(c.Dir, identityFile)
	switch id, known, err := ReadIdentity(c.Dir); {
	case err != nil:
		return Restored{}, err
	case known && id.Begun:
		return Restored{}, fmt.Errorf("%w: %s is of server %s of group %s: move it and %s aside first", raft.ErrHasState, file, formatID(id.Server), formatID(id.Cluster), filepath.Join(c.Dir, raftDir))
	}
	machine, err := store.ReadBackup(c.Backup)
	if err != nil {
		return Restored{}, err
	}
	fs, sizes, err := openDisk(c.Dir)
	if err != nil {
		return Restored{}, err
	}
	sum := sha256.Sum256(c.Backup)
	id := newIdentity(&cfg, sum[:])
	if err := id.write(c.Dir); err != nil {
		return Restored{}, err
	}
	forget(machine)
	if err := raft.Create(raft.Config{ID: id.Server, Cluster: formatID(id.Cluster), Voters: id.voters(), Disk: fs, Sizes: sizes}, machine); err != nil {
		return Restored{}, err
	}
	id.Begun = true
	return Restored{Identity: id, View: machine.View()}, id.write(c.Dir)
}

// forget drops what was true of the old group only.
func forget(m *store.Machine) {
	index, term := m.Applied()
	var commands []store.Command
	for _, r := range []store.Range{{Key: raft.LeaderKey}, store.WithPrefix(ServersPrefix), store.WithPrefix(control.LeavingPrefix)} {
		commands = append(commands, store.Command{Space: store.System, Op: &store.Op{Delete: &store.DeleteOp{Range: r}}})
	}
	m.Apply(index, term, commands)
}
