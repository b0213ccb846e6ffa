package disk

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

// Memory is a directory in memory, for servers that keep nothing: it ends with
// the process. What is allocated or written as zeros takes no room.
type Memory struct {
	mu    sync.Mutex
	files map[string]*memoryContent
}

// memoryContent is a file, which lasts as long as somebody has it open.
type memoryContent struct {
	mu   sync.Mutex
	size int64
	// pages of the file by their number; those that are missing are zeros.
	// Invariant: what a page has beyond size is zeros.
	pages map[int64]*[memoryPageBytes]byte
}

const memoryPageBytes = 32 << 10

// NewMemory returns an empty directory.
func NewMemory() *Memory { return &Memory{files: map[string]*memoryContent{}} }

// Create implements FS.
func (m *Memory) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] != nil {
		return nil, memoryError("create", name, fs.ErrExist)
	}
	c := &memoryContent{pages: map[int64]*[memoryPageBytes]byte{}}
	m.files[name] = c
	return &memoryFile{name: name, c: c}, nil
}

// Open implements FS.
func (m *Memory) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.files[name]
	if c == nil {
		return nil, memoryError("open", name, fs.ErrNotExist)
	}
	return &memoryFile{name: name, c: c}, nil
}

// Rename implements FS.
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.files[from]
	if c == nil {
		return memoryError("rename", from, fs.ErrNotExist)
	}
	delete(m.files, from)
	m.files[to] = c
	return nil
}

// Remove implements FS.
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.files[name] == nil {
		return memoryError("remove", name, fs.ErrNotExist)
	}
	delete(m.files, name)
	return nil
}

// List implements FS.
func (m *Memory) List() ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.files)), nil
}

// SyncNames implements FS.
func (m *Memory) SyncNames() error { return nil }

// FreeBytes implements FS. It is the memory that this host can give without
// swapping.
func (m *Memory) FreeBytes() (uint64, error) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("disk: %w", err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			var kilobytes uint64
			if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
				return 0, fmt.Errorf("disk: available memory is %q: %w", rest, err)
			}
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("disk: /proc/meminfo does not tell the available memory")
}

// memoryFile is an open file of a Memory.
type memoryFile struct {
	name   string
	c      *memoryContent
	closed bool // with c.mu
}

// lock begins a use of the file, which the returned function ends.
func (f *memoryFile) lock(op string, at int64) (func(), error) {
	f.c.mu.Lock()
	switch {
	case f.closed:
		f.c.mu.Unlock()
		return nil, memoryError(op, f.name, fs.ErrClosed)
	case at < 0:
		f.c.mu.Unlock()
		return nil, memoryError(op, f.name, fs.ErrInvalid)
	}
	return f.c.mu.Unlock, nil
}

// ReadAt implements io.ReaderAt.
func (f *memoryFile) ReadAt(p []byte, at int64) (int, error) {
	unlock, err := f.lock("read", at)
	if err != nil {
		return 0, err
	}
	defer unlock()
	n := int(min(int64(len(p)), max(f.c.size-at, 0)))
	for done := 0; done < n; {
		number, offset := (at+int64(done))/memoryPageBytes, (at+int64(done))%memoryPageBytes
		part := p[done:min(n, done+int(memoryPageBytes-offset))]
		if page := f.c.pages[number]; page != nil {
			copy(part, page[offset:])
		} else {
			clear(part)
		}
		done += len(part)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements io.WriterAt.
func (f *memoryFile) WriteAt(p []byte, at int64) (int, error) {
	unlock, err := f.lock("write", at)
	if err != nil {
		return 0, err
	}
	defer unlock()
	for done := 0; done < len(p); {
		number, offset := (at+int64(done))/memoryPageBytes, (at+int64(done))%memoryPageBytes
		part := p[done:min(len(p), done+int(memoryPageBytes-offset))]
		page := f.c.pages[number]
		if page == nil && slices.ContainsFunc(part, func(b byte) bool { return b != 0 }) {
			page = &[memoryPageBytes]byte{}
			f.c.pages[number] = page
		}
		if page != nil {
			copy(page[offset:], part)
		}
		done += len(part)
	}
	if len(p) > 0 {
		f.c.size = max(f.c.size, at+int64(len(p)))
	}
	return len(p), nil
}

// Size implements File.
func (f *memoryFile) Size() (int64, error) {
	unlock, err := f.lock("stat", 0)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return f.c.size, nil
}

// Allocate implements File. Room is found when it is written to.
func (f *memoryFile) Allocate(size int64) error {
	unlock, err := f.lock("allocate", size)
	if err != nil {
		return err
	}
	defer unlock()
	f.c.size = max(f.c.size, size)
	return nil
}

// Truncate implements File.
func (f *memoryFile) Truncate(size int64) error {
	unlock, err := f.lock("truncate", size)
	if err != nil {
		return err
	}
	defer unlock()
	number, offset := size/memoryPageBytes, size%memoryPageBytes
	if page := f.c.pages[number]; page != nil {
		clear(page[offset:])
	}
	maps.DeleteFunc(f.c.pages, func(n int64, _ *[memoryPageBytes]byte) bool {
		return n > number || n == number && offset == 0
	})
	f.c.size = size
	return nil
}

// Sync implements File.
func (f *memoryFile) Sync() error {
	unlock, err := f.lock("sync", 0)
	if err != nil {
		return err
	}
	unlock()
	return nil
}

// Close implements io.Closer.
func (f *memoryFile) Close() error {
	unlock, err := f.lock("close", 0)
	if err != nil {
		return err
	}
	defer unlock()
	f.closed = true
	return nil
}

func memoryError(op, name string, why error) error {
	return fmt.Errorf("disk: %w", &fs.PathError{Op: op, Path: name, Err: why})
}
