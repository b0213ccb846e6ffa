package pluginhost

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

const (
	startPrefix = ".s-"
	// socketRoom is what a child may add to its directory: go-plugin's
	// "/plugin" and ten digits, with room for others.
	socketRoom = 20
	// startRoom is "/.s-" and eight digits.
	startRoom    = 12
	socketSuffix = ".sock"
)

// runDir is the directory of sockets and of what has to be found again while
// the host is up. One agent at a time uses it.
type runDir struct {
	path string
	lock *os.File
}

// openRunDir makes the directory, and checks all that would else show as a
// failure of each plugin.
func openRunDir(path string) (*runDir, error) {
	const moved = "; choose another directory"
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("pluginhost: run directory %q is not absolute: write the whole path", path)
	}
	if most := handshake.MaxSocketPathBytes - socketRoom - startRoom; len(path) > most {
		return nil, fmt.Errorf("pluginhost: run directory %s is %d bytes long and may have %d: the path of a socket has to fit into %d; choose a shorter one",
			path, len(path), most, handshake.MaxSocketPathBytes)
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("pluginhost: make the run directory: %w%s", err, moved)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("pluginhost: run directory: %w%s", err, moved)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return nil, fmt.Errorf("pluginhost: run directory %s belongs to user %d and the agent is user %d%s", path, owner, os.Geteuid(), moved)
	}
	if info.Mode().Perm() != 0o700 {
		if err := os.Chmod(path, 0o700); err != nil {
			return nil, fmt.Errorf("pluginhost: run directory %s is open to others: %w%s", path, err, moved)
		}
	}
	lock, err := lockDir(path)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("pluginhost: run directory %s is used by another agent%s: %w", path, moved, err)
	case err != nil:
		return nil, fmt.Errorf("pluginhost: run directory %s cannot be written: %w%s", path, err, moved)
	}
	return &runDir{path: path, lock: lock}, nil
}

const lockFile = ".lock"

// lockDir takes the lock of a run directory. The agent that had it removes the
// file with the directory, so what was locked has to be what is there now.
func lockDir(path string) (*os.File, error) {
	for {
		lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			_ = lock.Close()
			return nil, err
		}
		mine, err := lock.Stat()
		if err == nil {
			if there, statErr := os.Stat(lock.Name()); statErr == nil && os.SameFile(mine, there) {
				return lock, nil
			}
		}
		_ = lock.Close()
		if err := os.MkdirAll(path, 0o700); err != nil {
			return nil, err
		}
	}
}

// close gives the directory to the next agent, and removes it if nothing is in
// it that this one could need.
func (r *runDir) close() {
	defer r.lock.Close()
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return !e.IsDir() && e.Name() != lockFile }) {
		return
	}
	for _, e := range entries {
		if e.IsDir() && unix.Rmdir(filepath.Join(r.path, e.Name())) != nil {
			return
		}
	}
	_ = os.Remove(r.lock.Name())
	_ = os.Remove(r.path)
}

// socket is where a provider that is not our child, or no more, is found.
func (r *runDir) socket(name string) string { return filepath.Join(r.path, name+socketSuffix) }

// checkSocket says whether the path can be a socket's.
func checkSocket(path string) error {
	if len(path) > handshake.MaxSocketPathBytes {
		return fmt.Errorf("socket %s: the path is %d bytes long and may have %d: choose a shorter run directory", path, len(path), handshake.MaxSocketPathBytes)
	}
	return nil
}

// begin makes the directory of one start.
func (r *runDir) begin(rng *rand.Rand) (string, error) {
	for {
		var b [4]byte
		v := rng.Uint32()
		b[0], b[1], b[2], b[3] = byte(v>>24), byte(v>>16), byte(v>>8), byte(v)
		dir := filepath.Join(r.path, startPrefix+hex.EncodeToString(b[:]))
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("run directory %s cannot be written: %w; make room there, mount it for writing, or choose another one", r.path, err)
		}
		return dir, nil
	}
}

// leftovers returns the records of children of an agent before us, and removes
// what its starts left.
func (r *runDir) leftovers() []record {
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return nil
	}
	var out []record
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasPrefix(name, startPrefix), strings.HasSuffix(name, recordSuffix+".tmp"):
			_ = os.RemoveAll(filepath.Join(r.path, name))
		case strings.HasSuffix(name, recordSuffix):
			plugin := strings.TrimSuffix(name, recordSuffix)
			if rec, ok := readRecord(r.path, plugin); ok {
				out = append(out, rec)
			} else {
				_ = remove(filepath.Join(r.path, name))
			}
		}
	}
	return out
}

// forget removes the record of a plugin and the socket it named.
func (r *runDir) forget(rec record) {
	_ = remove(filepath.Join(r.path, rec.Name+recordSuffix))
	if rec.Serve {
		_ = remove(rec.Socket)
	}
}
