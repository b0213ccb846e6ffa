// Package disktest is a directory in memory that crashes, for tests of what
// writes to a disk.
package disktest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/fairlead/fairlead/core/raft/disk"
)

// ErrCrashed is what every call says after the crash.
var ErrCrashed = errors.New("disktest: crashed")

var _ disk.FS = (*Crash)(nil)

// Crash is a directory in memory that can crash: it counts what is done to it,
// stops at a given count, and then says in what states the disk may be.
type Crash struct {
	mu    sync.Mutex
	names map[string]*content // as programs see it
	// lasting is what the names were at the last SyncNames, and changes what
	// happened to them since, in order.
	lasting map[string]*content
	changes []change
	steps   int // that were done
	stopAt  int // no step after so many; 0: never

	// Lies names calls that do nothing and say that all is well: "sync" and
	// "names". Tests that find this out can find a forgotten call.
	Lies map[string]bool
	// FreeLeft is what FreeBytes says.
	FreeLeft uint64
}

// content is a file, which may have any name or none.
type content struct {
	now     []byte
	lasting []byte  // at the last Sync
	pending []patch // since then, in order
}

// patch is a write, or a new size if data is nil.
type patch struct {
	at   int64
	data []byte
}

// change is a rename, or a removal if to is empty, or a creation if from is.
type change struct {
	from, to string
	file     *content
}

// Fate says what a crash makes of what was not synced. All are possible on real
// disks, which write in any order and 512 bytes at a time.
type Fate struct {
	// Names is how many of the changes of names happened, of those that were not
	// synced; they happen in order. Negative: all.
	Names int
	// Sector reports whether the given sector of the given unsynced write got to
	// the disk. Nil: all did.
	Sector func(file string, write, sector int) bool
}

// SectorBytes is what a disk writes as a whole.
const SectorBytes = 512

// NewCrash returns an empty directory.
func NewCrash() *Crash {
	return &Crash{names: map[string]*content{}, lasting: map[string]*content{}, FreeLeft: 1 << 40}
}

// StopAt lets everything fail with ErrCrashed after n more steps: writes, syncs
// and changes of names each are one.
func (c *Crash) StopAt(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopAt = c.steps + n
}

// Steps returns how many steps were done.
func (c *Crash) Steps() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.steps
}

// Unsynced returns how many writes and changes of names a crash may lose.
func (c *Crash) Unsynced() (writes, names int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[*content]bool{}
	for _, f := range c.files() {
		if !seen[f] {
			seen[f] = true
			writes += len(f.pending)
		}
	}
	return writes, len(c.changes)
}

// After returns what is there when the machine is up again.
func (c *Crash) After(fate Fate) *Crash {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := maps.Clone(c.lasting)
	for i, ch := range c.changes {
		if fate.Names >= 0 && i >= fate.Names {
			break
		}
		ch.apply(names)
	}
	out := NewCrash()
	out.FreeLeft = c.FreeLeft
	for _, name := range slices.Sorted(maps.Keys(names)) { // a fate may draw: each time in the same order
		f := names[name]
		data := f.after(name, fate)
		kept := &content{now: data, lasting: slices.Clone(data)}
		out.names[name], out.lasting[name] = kept, kept
	}
	return out
}

func (f *content) after(name string, fate Fate) []byte {
	data := slices.Clone(f.lasting)
	for i, p := range f.pending {
		if p.data == nil {
			if fate.Sector == nil || fate.Sector(name, i, 0) {
				data = resize(data, p.at)
			}
			continue
		}
		for sector, done := 0, 0; done < len(p.data); sector++ {
			n := min(SectorBytes-int(p.at+int64(done))%SectorBytes, len(p.data)-done)
			if fate.Sector == nil || fate.Sector(name, i, sector) {
				data = patch{p.at + int64(done), p.data[done : done+n]}.apply(data)
			}
			done += n
		}
	}
	return data
}

func (p patch) apply(data []byte) []byte {
	if p.data == nil {
		return resize(data, p.at)
	}
	if end := p.at + int64(len(p.data)); end > int64(len(data)) {
		data = resize(data, end)
	}
	copy(data[p.at:], p.data)
	return data
}

func resize(data []byte, size int64) []byte {
	if int64(len(data)) >= size {
		return data[:size:size]
	}
	return append(data, make([]byte, size-int64(len(data)))...)
}

func (ch change) apply(names map[string]*content) {
	switch {
	case ch.from == "":
		names[ch.to] = ch.file
	case ch.to == "":
		delete(names, ch.from)
	default:
		delete(names, ch.from)
		names[ch.to] = ch.file
	}
}

// files lists all contents that a program or a crash may see.
func (c *Crash) files() []*content {
	all := slices.Collect(maps.Values(c.names))
	all = slices.AppendSeq(all, maps.Values(c.lasting))
	for _, ch := range c.changes {
		if ch.file != nil {
			all = append(all, ch.file)
		}
	}
	return all
}

// step counts one thing that is done; c.mu is held.
func (c *Crash) step() error {
	if c.stopAt > 0 && c.steps >= c.stopAt {
		return ErrCrashed
	}
	c.steps++
	return nil
}

func (c *Crash) rename(ch change) error {
	if err := c.step(); err != nil {
		return err
	}
	ch.apply(c.names)
	c.changes = append(c.changes, ch)
	return nil
}

// Create implements disk.FS.
func (c *Crash) Create(name string) (disk.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[name] != nil {
		return nil, exist("create", name)
	}
	f := &content{}
	if err := c.rename(change{to: name, file: f}); err != nil {
		return nil, err
	}
	return &crashFile{c: c, f: f, name: name}, nil
}

// Open implements disk.FS.
func (c *Crash) Open(name string) (disk.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.names[name]
	if f == nil {
		return nil, notExist("open", name)
	}
	return &crashFile{c: c, f: f, name: name}, nil
}

// Rename implements disk.FS.
func (c *Crash) Rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.names[from]
	if f == nil {
		return notExist("rename", from)
	}
	return c.rename(change{from: from, to: to, file: f})
}

// Remove implements disk.FS.
func (c *Crash) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[name] == nil {
		return notExist("remove", name)
	}
	return c.rename(change{from: name})
}

// List implements disk.FS.
func (c *Crash) List() ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names)), nil
}

// SyncNames implements disk.FS.
func (c *Crash) SyncNames() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.step(); err != nil || c.Lies["names"] {
		return err
	}
	c.lasting, c.changes = maps.Clone(c.names), nil
	return nil
}

// FreeBytes implements disk.FS.
func (c *Crash) FreeBytes() (uint64, error) { return c.FreeLeft, nil }

// Damage changes bytes of a file, on disk as well.
func (c *Crash) Damage(name string, at int64, data []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.names[name]
	if f == nil {
		return notExist("damage", name)
	}
	if at+int64(len(data)) > int64(len(f.now)) {
		return fmt.Errorf("disktest: damage of %s at %d: it has %d bytes", name, at, len(f.now))
	}
	copy(f.now[at:], data)
	f.lasting, f.pending = slices.Clone(f.now), nil
	return nil
}

// crashFile is an open file of a Crash.
type crashFile struct {
	c      *Crash
	f      *content
	name   string
	closed bool
}

func (f *crashFile) write(p patch) error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if f.closed {
		return errors.New("disktest: " + f.name + " is closed")
	}
	if err := f.c.step(); err != nil {
		return err
	}
	f.f.now = p.apply(f.f.now)
	f.f.pending = append(f.f.pending, p)
	return nil
}

// WriteAt implements io.WriterAt.
func (f *crashFile) WriteAt(p []byte, at int64) (int, error) {
	if err := f.write(patch{at, slices.Clone(p)}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// ReadAt implements io.ReaderAt.
func (f *crashFile) ReadAt(p []byte, at int64) (int, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if at >= int64(len(f.f.now)) {
		return 0, io.EOF
	}
	n := copy(p, f.f.now[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Size implements disk.File.
func (f *crashFile) Size() (int64, error) {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	return int64(len(f.f.now)), nil
}

// Allocate implements disk.File.
func (f *crashFile) Allocate(size int64) error {
	now, err := f.Size()
	if err != nil {
		return err
	}
	return f.write(patch{at: max(size, now)})
}

// Truncate implements disk.File.
func (f *crashFile) Truncate(size int64) error { return f.write(patch{at: size}) }

// Sync implements disk.File.
func (f *crashFile) Sync() error {
	f.c.mu.Lock()
	defer f.c.mu.Unlock()
	if err := f.c.step(); err != nil || f.c.Lies["sync"] {
		return err
	}
	f.f.lasting, f.f.pending = slices.Clone(f.f.now), nil
	return nil
}

// Close implements io.Closer.
func (f *crashFile) Close() error {
	f.closed = true
	return nil
}

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

func exist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrExist} }
