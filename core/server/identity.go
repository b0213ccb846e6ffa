package server

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/raft/snap"
	"github.com/fairlead/fairlead/core/raft/wal"
)

// Identity says which server of which group a data directory is of.
type Identity struct {
	Cluster uint64 // of the group, not of gossip
	Server  uint64
	Node    string   // its name when it became a server
	Set     []string // names of a static set, sorted
	// Voters are those that a group without a static set began with. Neither these nor
	// a Set: this server was added later.
	Voters []uint64
	// Begun says that there is a log. Without one it is not begun anew: a server
	// that forgot how it voted could vote twice in one term.
	Begun bool
	// Clearing says that raft/ is of another server that this node was, and is emptied
	// before anything else.
	Clearing bool
	// Replaces is the group of which raft/ still may be, and that is to be put aside
	// before anything else: see Recover.
	Replaces uint64
}

const (
	identityFile      = "raft.json"
	identityFileBytes = 64 << 10
	raftDir           = "raft"
)

// The errors of a data directory that does not fit.
var (
	// ErrOther says that the data directory is of another server or group.
	ErrOther = errors.New("server: this data directory is of another server or set")
	// ErrForgotten says that the log is gone.
	ErrForgotten = errors.New("server: the log of this server is gone")
)

// written is the form of the file.
type written struct {
	Cluster string   `json:"cluster_id"`
	Server  string   `json:"raft_id"`
	Node    string   `json:"node"`
	Set     []string `json:"set,omitempty"`
	Voters  []string `json:"voters,omitempty"`
	Begun   bool     `json:"begun"`
	Clear   bool     `json:"clearing,omitempty"`
	Instead string   `json:"replaces,omitempty"`
}

// ReadIdentity returns what a data directory says; known is false if it was never
// one of a server.
func ReadIdentity(dir string) (id Identity, known bool, err error) {
	path := filepath.Join(dir, identityFile)
	data, err := durable.Read(path, identityFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return Identity{}, false, nil
	}
	if err != nil {
		return Identity{}, false, fmt.Errorf("server: %w", err)
	}
	var w written
	if err := json.Unmarshal(data, &w); err != nil {
		return Identity{}, false, damagedIdentity(path, err)
	}
	id = Identity{Node: w.Node, Set: w.Set, Begun: w.Begun, Clearing: w.Clear}
	type number struct {
		text string
		to   *uint64
	}
	numbers := []number{{w.Cluster, &id.Cluster}, {w.Server, &id.Server}}
	if w.Instead != "" {
		numbers = append(numbers, number{w.Instead, &id.Replaces})
	}
	id.Voters = make([]uint64, len(w.Voters))
	for i, text := range w.Voters {
		numbers = append(numbers, number{text, &id.Voters[i]})
	}
	for _, f := range numbers {
		if *f.to, err = strconv.ParseUint(f.text, 16, 64); err != nil || *f.to == 0 {
			return Identity{}, false, damagedIdentity(path, fmt.Errorf("%q is no id", f.text))
		}
	}
	return id, true, nil
}

// damagedIdentity says what can be done about a file that cannot be read. It is not to
// be taken away alone: the node has its id, and its place in what it formed, from other
// files, and would begin once more as who it was, with nothing.
func damagedIdentity(path string, err error) error {
	return fmt.Errorf("server: %s is damaged: %w: bring back a copy, or give this node a new data directory, so that it comes as a new server; of a static set, restore a backup on all servers (`fairlead snapshot restore`)", path, err)
}

// write replaces the file; without a directory it does nothing.
func (id Identity) write(dir string) error {
	if dir == "" {
		return nil
	}
	w := written{Cluster: formatID(id.Cluster), Server: formatID(id.Server), Node: id.Node, Set: id.Set, Begun: id.Begun, Clear: id.Clearing}
	for _, v := range id.Voters {
		w.Voters = append(w.Voters, formatID(v))
	}
	if id.Replaces != 0 {
		w.Instead = formatID(id.Replaces)
	}
	data, err := json.MarshalIndent(w, "", "  ")
	if err != nil {
		return fmt.Errorf("server: %w", err)
	}
	if err := durable.Replace(filepath.Join(dir, identityFile), append(data, '\n')); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// fits returns why a configuration does not go with the directory.
func (id Identity) fits(c *Config) error {
	file := filepath.Join(c.Dir, identityFile)
	switch names := c.names(); {
	case id.Node != c.Node:
		return fmt.Errorf("%w: %s says that it is of node %s, and node.name is %s: give each node a data directory of its own, or set the name back; a name that was changed on purpose, and not in raft.peers, is changed in %s, too", ErrOther, file, id.Node, c.Node, file)
	case slices.Equal(id.Set, names):
		return nil
	case len(id.Set) == 0:
		return fmt.Errorf("%w: %s says that this server's group has no static set, and raft.peers names %s: take them out of the configuration; or, to make them one, `fairlead snapshot save`, move %s and %s aside and `fairlead snapshot restore` on all of them",
			ErrOther, file, strings.Join(names, ", "), file, filepath.Join(c.Dir, raftDir))
	case len(names) == 0:
		return fmt.Errorf("%w: %s says that this server is one of %s, and raft.peers is empty: put them back", ErrOther, file, strings.Join(id.Set, ", "))
	default:
		return fmt.Errorf("%w: %s says that the set is %s, and raft.peers names %s: a static set keeps its names; only their addresses may change", ErrOther, file, strings.Join(id.Set, ", "), strings.Join(names, ", "))
	}
}

// advise says what can be done about a state that does not open. A server of a static
// set comes back under its old id, which with an empty disk would have forgotten what
// it voted for and confirmed: what others believe to be written could be lost.
func (id Identity) advise(err error, dir string) error {
	file, state := filepath.Join(dir, identityFile), filepath.Join(dir, raftDir)
	const all = "save a backup at another server (`fairlead snapshot save`) and restore it on all of them (`fairlead snapshot restore`)"
	const never = "; of a static set never empty one server alone"
	var inLog *wal.DamageError
	var inSnapshot *snap.DamageError
	static := len(id.Set) > 0
	switch gone := errors.Is(err, raft.ErrNoState); {
	case gone && static:
		return fmt.Errorf("%w, though %s says that it began one: bring back %s from where it went; if it is lost, %s%s", ErrForgotten, file, state, all, never)
	case gone:
		return fmt.Errorf("%w, though %s says that it began one: bring back %s from where it went; if it is lost, restore a backup on all servers (`fairlead snapshot restore`), or give this node a new data directory", ErrForgotten, file, state)
	case !errors.As(err, &inLog) && !errors.As(err, &inSnapshot) && !errors.Is(err, snap.ErrNone):
		return err
	case static:
		return fmt.Errorf("in %s %w: the others of the set go on without it: %s%s", state, err, all, never)
	default:
		return fmt.Errorf("in %s %w: give this node a new data directory, so that it joins its group again; if it is alone, `fairlead snapshot restore` a backup", state, err)
	}
}

// newIdentity is that of a server whose group begins. Salt tells groups of one set
// apart: what they begin with.
func newIdentity(c *Config, salt []byte) Identity {
	id := Identity{Node: c.Node, Set: c.names()}
	if len(id.Set) == 0 {
		id.Cluster, id.Server = drawID(), cmp.Or(uint64(c.NodeID), drawID())
		id.Voters = []uint64{id.Server}
		return id
	}
	h := sha256.New()
	for _, part := range append([]string{"fairlead static set", c.Cluster, string(salt)}, id.Set...) {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	id.Cluster = max(binary.BigEndian.Uint64(h.Sum(nil)), 1)
	id.Server = uint64(slices.Index(id.Set, c.Node) + 1)
	return id
}

// drawID returns a random number that is not 0.
func drawID() uint64 {
	var b [8]byte
	for {
		_, _ = rand.Read(b[:]) // it never fails
		if id := binary.BigEndian.Uint64(b[:]); id != 0 {
			return id
		}
	}
}

// voters are those that a new group begins with; none of one that is joined.
func (id Identity) voters() []uint64 {
	if len(id.Set) == 0 {
		return id.Voters
	}
	var ids []uint64
	for i := range id.Set {
		ids = append(ids, uint64(i+1))
	}
	return ids
}

func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }
