// Package reaper ends connections to endpoints that are gone: those that the data
// path led there. Each socket knows that of itself, by its storage, so a connection
// that an application made to the same address by itself lives on.
//
// There are two ways: a program that goes through the sockets of one network
// namespace and destroys them on the spot, and, on kernels before 6.5, a list of
// the sockets with their storage, by which each is destroyed from here.
package reaper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Doom is an endpoint whose connections are to be ended.
type Doom struct {
	Service  uint32
	Endpoint uint64
	Silent   time.Duration // spare TCP connections that heard anything within; 0: none
}

// Reaper ends connections. It is used by one goroutine.
type Reaper interface {
	// Pass goes once through the sockets of each network namespace, and returns
	// how many it ended.
	Pass(list []Doom) (ended int, err error)
	Close()
}

// New returns the better way that this kernel has, for sockets with this map of
// storage.
func New(sockets *ebpf.Map) (Reaper, error) {
	it, err := NewIterator(sockets)
	if err == nil {
		return it, nil
	}
	list, other := NewLister(sockets)
	if other != nil {
		return nil, errors.Join(err, other)
	}
	return list, nil
}

// everywhere calls walk in each network namespace that a process is in: whoever
// looks for sockets sees only those of its own.
func everywhere(walk func() error) error {
	spaces, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	seen := make(map[uint64]bool)
	for _, path := range spaces {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || seen[st.Ino] {
			continue // the process is gone, or another one is in the same
		}
		seen[st.Ino] = true
		if e := inside(path, walk); e != nil && !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("sockets of %s: %w", path, e))
		}
	}
	return err
}

// inside calls walk in a network namespace.
func inside(path string, walk func() error) error {
	space, err := os.Open(path)
	if err != nil {
		return err
	}
	defer space.Close()
	return <-onOwnThread(func() error {
		if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return walk()
	})
}

// onOwnThread runs f on a thread that dies with what f changed about it.
func onOwnThread(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The first thread does not die, and /proc shows it as the process.
			// While this goroutine occupies it, the next one gets another.
			defer runtime.UnlockOSThread()
			done <- <-onOwnThread(f)
			return
		}
		done <- f()
	}()
	return done
}
