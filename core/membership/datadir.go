package membership

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// ErrDataDir is wrapped by every refusal of a data directory.
var ErrDataDir = errors.New("membership: data directory")

const (
	nodeFile     = "node.json"
	lockFile     = "lock"
	nodeFileSize = 64 << 10 // far above what is ever written
)

// dataDir is who this node is across restarts. The zero path keeps nothing.
type dataDir struct {
	path  string
	lock  *os.File
	id    model.NodeID
	epoch uint64 // as last written, or read
}

// nodeJSON is the content of node.json.
type nodeJSON struct {
	ID    model.NodeID `json:"id"`
	Epoch uint64       `json:"epoch"`
}

// openDataDir locks the directory and reads who this node is; a directory
// without node.json is given an id drawn from random. Nothing is written yet
// but the lock: call boot.
func openDataDir(path string, random io.Reader) (*dataDir, error) {
	if path == "" {
		id, err := model.MintNodeID(random)
		if err != nil {
			return nil, err
		}
		return &dataDir{id: id}, nil
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("%w %s cannot be created: %w: %s", ErrDataDir, path, err, diskRemedy(err, "set node.data_dir to a directory that the agent may write"))
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	d := &dataDir{path: path, lock: lock}
	if err := d.load(random); err != nil {
		return nil, errors.Join(err, d.close())
	}
	return d, nil
}

// LockDataDir keeps agents out of a data directory until it is released, for who
// changes it from outside; a missing one is made. It fails if an agent has it.
func LockDataDir(path string) (release func() error, err error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("%w %s cannot be created: %w", ErrDataDir, path, err)
	}
	lock, err := lockDir(path)
	if err != nil {
		return nil, err
	}
	return lock.Close, nil
}

// lockDir takes the lock that keeps a second agent out. The kernel drops it
// when the process ends, however it ends.
func lockDir(path string) (*os.File, error) {
	name := filepath.Join(path, lockFile)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w %s cannot be used: %w: %s", ErrDataDir, path, err, diskRemedy(err, "give it to the user that runs the agent, or set node.data_dir"))
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		holder := "another process"
		if text, err := durable.Read(name, 32); err == nil {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				holder = "pid " + strconv.Itoa(pid)
			}
		}
		return nil, errors.Join(fmt.Errorf("%w %s is in use by %s: stop that agent or set node.data_dir", ErrDataDir, path, holder), f.Close())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w %s cannot be locked: %w: %s", ErrDataDir, path, err, diskRemedy(err, "it must lie on a local, writable file system")), f.Close())
	}
	return f, nil
}

// diskRemedy says what to do about err: what the disk itself asks for, else
// otherwise.
func diskRemedy(err error, otherwise string) string {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return "free some space (df and df -i show what is full), or set node.data_dir"
	case errors.Is(err, syscall.EROFS):
		return "mount it writable, or set node.data_dir"
	}
	return otherwise
}

// load reads node.json. A damaged file is never replaced by a new identity:
// the cluster would see a node vanish and a stranger take its place.
func (d *dataDir) load(random io.Reader) error {
	name := d.file(nodeFile)
	data, err := durable.Read(name, nodeFileSize)
	if errors.Is(err, os.ErrNotExist) {
		d.id, err = model.MintNodeID(random)
		return err
	}
	const remedy = "restore the file from a copy, or remove it to join as a new node"
	if err != nil {
		return fmt.Errorf("%w: %s cannot be read: %w: %s", ErrDataDir, name, err, remedy)
	}
	var n nodeJSON
	if err := json.Unmarshal(data, &n); err != nil {
		return fmt.Errorf("%w: %s is damaged: %w: %s", ErrDataDir, name, err, remedy)
	}
	if n.ID == 0 {
		return fmt.Errorf("%w: %s is damaged: it holds no id: %s", ErrDataDir, name, remedy)
	}
	if n.Epoch == 0 || n.Epoch >= wire.MaxWord {
		return fmt.Errorf("%w: %s is damaged: epoch %d is not in 1 to %d: %s", ErrDataDir, name, n.Epoch, uint64(wire.MaxWord)-1, remedy)
	}
	d.id, d.epoch = n.ID, n.Epoch
	return nil
}

// boot raises the boot counter by one, durably, and returns it.
func (d *dataDir) boot() (uint64, error) {
	if err := d.persistEpoch(d.epoch + 1); err != nil {
		return 0, err
	}
	return d.epoch, nil
}

// persistEpoch writes the boot counter and returns once it cannot be forgotten.
func (d *dataDir) persistEpoch(epoch uint64) error {
	if d.path == "" {
		d.epoch = epoch
		return nil
	}
	data, err := json.Marshal(nodeJSON{ID: d.id, Epoch: epoch})
	if err != nil {
		return err
	}
	if err := durable.Replace(d.file(nodeFile), append(data, '\n')); err != nil {
		return fmt.Errorf("%w: boot counter %d cannot be written to %s: %w: %s", ErrDataDir, epoch, d.file(nodeFile), err, diskRemedy(err, "make the directory writable"))
	}
	d.epoch = epoch
	return nil
}

func (d *dataDir) file(name string) string { return filepath.Join(d.path, name) }

// close gives the directory to the next agent.
func (d *dataDir) close() error {
	if d.lock == nil {
		return nil
	}
	return d.lock.Close()
}
