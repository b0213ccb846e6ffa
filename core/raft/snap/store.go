package snap

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/raft/disk"
)

// Store is the snapshots of one directory. Its methods may be called from several
// goroutines, but one snapshot is made or received at a time.
type Store struct{ fs disk.FS }

// Open returns the snapshots of a directory, and removes what was not finished. Names
// that a process gave and was killed before it synced them last from then on.
func Open(fs disk.FS) (*Store, error) {
	names, err := fs.List()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, pending) {
			if err := fs.Remove(name); err != nil {
				return nil, err
			}
		}
	}
	if err := fs.SyncNames(); err != nil {
		return nil, err
	}
	return &Store{fs: fs}, nil
}

// List returns index and term of all snapshots, newest first.
func (s *Store) List() ([]Meta, error) {
	names, err := s.fs.List()
	if err != nil {
		return nil, err
	}
	var out []Meta
	for _, name := range names {
		if m, ok := parseName(name); ok {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b Meta) int {
		switch {
		case a.Index > b.Index || a.Index == b.Index && a.Term > b.Term:
			return -1
		}
		return 1
	})
	return out, nil
}

// Save makes a snapshot of what fill yields, and returns when it is on disk. One
// that is there already is left as it is.
func (s *Store) Save(m Meta, fill func(yield func([]byte) error) error) error {
	if err := m.check(); err != nil {
		return err
	}
	if there, err := s.has(m); err != nil || there {
		return err
	}
	in, err := s.Receive(m)
	if err != nil {
		return err
	}
	o := in.output
	err = o.write([]byte(magic))
	if err == nil {
		err = o.piece(encodeMeta(m))
	}
	if err == nil {
		err = fill(o.piece)
	}
	if err == nil {
		err = o.end()
	}
	if err != nil {
		return errors.Join(err, in.Abort())
	}
	return in.publish()
}

func (s *Store) has(m Meta) (bool, error) {
	all, err := s.List()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(all, func(o Meta) bool { return o.Index == m.Index && o.Term == m.Term }), nil
}

// Load returns a snapshot, checked: ErrNone if it is not there, a *DamageError if
// it is not what was written.
func (s *Store) Load(index, term uint64) (Meta, []byte, error) {
	m := Meta{Index: index, Term: term}
	r, size, err := s.open(index, term)
	if err != nil {
		return Meta{}, nil, err
	}
	defer r.Close()
	var data bytes.Buffer
	data.Grow(int(size)) // once: a large one would be copied from buffer to buffer
	got, at, err := check(r, &data)
	if err == nil && (got.Index != index || got.Term != term) {
		err = fmt.Errorf("it is of index %d, term %d", got.Index, got.Term)
	}
	if err != nil {
		return Meta{}, nil, &DamageError{m.name(), at, err.Error()}
	}
	return got, data.Bytes(), nil
}

// check reads a snapshot to its end; at is how far it came.
func check(r io.Reader, data io.Writer) (m Meta, at int64, err error) {
	in := newInput(r)
	if m, err = in.meta(); err != nil {
		return m, in.at, err
	}
	for {
		p, err := in.piece()
		if err != nil {
			return m, in.at, err
		}
		if p == nil {
			return m, in.at, in.end()
		}
		if _, err := data.Write(p); err != nil {
			return m, in.at, err
		}
	}
}

// Send opens a snapshot as it is on disk. It can be read to its end also when it
// is removed meanwhile.
func (s *Store) Send(index, term uint64) (io.ReadCloser, error) {
	r, _, err := s.open(index, term)
	return r, err
}

// open also says how large it is.
func (s *Store) open(index, term uint64) (io.ReadCloser, int64, error) {
	name := Meta{Index: index, Term: term}.name()
	if there, err := s.has(Meta{Index: index, Term: term}); err != nil {
		return nil, 0, err
	} else if !there {
		return nil, 0, fmt.Errorf("%w: %s", ErrNone, name)
	}
	file, err := s.fs.Open(name)
	if err != nil {
		return nil, 0, err
	}
	size, err := file.Size()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, 0, size), file}, size, nil
}

// Keep removes all but the newest n of the snapshots up to an index. Newer ones came
// from elsewhere, and may yet be put in force, or never: they count for nothing.
func (s *Store) Keep(n int, index uint64) error {
	all, err := s.List()
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m Meta) bool { return m.Index > index })
	if len(all) <= n {
		return nil
	}
	for _, m := range all[n:] {
		if err := s.fs.Remove(m.name()); err != nil {
			return err
		}
	}
	return s.fs.SyncNames()
}

// Incoming is a snapshot that comes in.
type Incoming struct {
	s      *Store
	meta   Meta
	draft  string
	output *output
}

// Receive begins to take a snapshot of another server.
func (s *Store) Receive(m Meta) (*Incoming, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	draft := strings.TrimSuffix(m.name(), suffix) + pending
	if err := s.fs.Remove(draft); err != nil && !isNotExist(err) {
		return nil, err
	}
	file, err := s.fs.Create(draft)
	if err != nil {
		return nil, err
	}
	return &Incoming{s: s, meta: m, draft: draft, output: &output{file: file, hash: sha256.New()}}, nil
}

// Write takes the next bytes of the snapshot as its sender has it on disk.
func (i *Incoming) Write(p []byte) (int, error) {
	if err := i.output.write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Commit checks what came in and makes it a snapshot; on an error it is gone.
func (i *Incoming) Commit() error {
	got, at, err := check(io.NewSectionReader(i.output.file, 0, i.output.at), io.Discard)
	switch {
	case err != nil:
		err = &DamageError{i.draft, at, err.Error()}
	case got.Cluster != i.meta.Cluster:
		err = fmt.Errorf("snap: a snapshot of cluster %s was sent to one of %s", got.Cluster, i.meta.Cluster)
	case got.Index != i.meta.Index || got.Term != i.meta.Term:
		err = fmt.Errorf("snap: a snapshot of index %d, term %d was sent as one of %d, %d", got.Index, got.Term, i.meta.Index, i.meta.Term)
	}
	if err != nil {
		return errors.Join(err, i.Abort())
	}
	return i.publish()
}

func (i *Incoming) publish() error {
	if err := errors.Join(i.output.file.Sync(), i.output.file.Close()); err != nil {
		return err
	}
	if err := i.s.fs.Rename(i.draft, i.meta.name()); err != nil {
		return err
	}
	return i.s.fs.SyncNames()
}

// Abort forgets what came in.
func (i *Incoming) Abort() error {
	return errors.Join(i.output.file.Close(), i.s.fs.Remove(i.draft))
}

func isNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
