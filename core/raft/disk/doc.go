// Package disk is the little that the log and the snapshots of Raft need of a
// file system, so that there can be others: OS is the real one, Memory is of
// servers that keep nothing, that of package disktest crashes and forgets what
// was not synced.
package disk

import "io"

// FS is one directory. Names have no slash in them.
type FS interface {
	// Create makes an empty file for writing; it is an error that wraps
	// fs.ErrExist if there is one already.
	Create(name string) (File, error)
	// Open opens a file for reading and writing.
	Open(name string) (File, error)
	// Rename replaces what has the new name.
	Rename(from, to string) error
	Remove(name string) error
	// List returns the names of all files, sorted.
	List() ([]string, error)
	// SyncNames makes what Create, Rename and Remove did last over a crash.
	SyncNames() error
	// FreeBytes returns how much more may be written, about.
	FreeBytes() (uint64, error)
}

// File is an open file. After Sync failed nobody knows what is on disk: it must
// not be called again in the hope that it succeeds.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	// Allocate makes the file size bytes long and finds room for all of it. What
	// was not written reads as zeros.
	Allocate(size int64) error
	// Truncate cuts the file.
	Truncate(size int64) error
	// Sync makes what was written to this file last over a crash, not its name.
	Sync() error
}

var (
	_ FS = (*OS)(nil)
	_ FS = (*Memory)(nil)
)
