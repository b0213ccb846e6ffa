// Package journal remembers in a file what was programmed, so that the next process
// knows it: which generation that is, and the services. The file is written without
// sync: a kernel that stops loses its rules as well. Whether the file tells the
// truth is for the reader to find out, by comparing with the kernel.
//
// The file is a magic line, then messages of the contract, each behind its length: a
// Begin and its Changes before a generation is applied, a Commit after it. The first
// generation is a whole snapshot; when the file has grown to some times its size it
// is written anew.
package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/fairlead/fairlead/dataplane"
	pb "github.com/fairlead/fairlead/dataplane/dataplanepb"
	"github.com/fairlead/fairlead/dataplane/transfer"
)

// magic begins a file. Another version of it is no file of ours.
const magic = "fairlead iptables journal 1\n"

// Journal writes the file of one instance. The zero Journal keeps nothing.
type Journal struct {
	path    string
	file    *os.File
	encoder *transfer.Encoder
	last    *dataplane.Snapshot // committed; nil: the next one is written whole
	size    int64               // of the file
	whole   int64               // of the file when it held a snapshot only
}

// Memory is what a file tells.
type Memory struct {
	// Snapshot is the newest generation that was begun.
	Snapshot *dataplane.Snapshot
	// Committed is whether that was applied, as far as the writer knew.
	Committed bool
}

// fileName begins the name of an instance's file.
const fileName = "programmed-"

// Open returns the journal of an instance, by its tag, in a directory, "" for one that keeps nothing, and what
// the file there remembers: the zero Memory if there is none, or none that can be
// read.
func Open(dir, tag string) (*Journal, Memory) {
	if dir == "" {
		return &Journal{}, Memory{}
	}
	j := &Journal{path: filepath.Join(dir, fileName+tag)}
	b, err := os.ReadFile(j.path)
	if err != nil {
		return j, Memory{}
	}
	return j, remember(b)
}

// remember replays a file. What its end lacks was not written in time.
func remember(b []byte) Memory {
	rest, ok := bytes.CutPrefix(b, []byte(magic))
	if !ok {
		return Memory{}
	}
	var m Memory
	a := transfer.NewAssembler(dataplane.Limits{})
	var g *transfer.Generation
	for len(rest) > 0 {
		r := &pb.ReconcileRequest{}
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) || proto.Unmarshal(rest[used:used+int(n)], r) != nil {
			break
		}
		rest = rest[used+int(n):]
		var err error
		switch {
		case r.GetBegin() != nil:
			g, err = a.Begin(r.GetBegin())
		case g == nil:
			err = io.ErrUnexpectedEOF
		case r.GetChange() != nil:
			err = g.Change(r.GetChange())
		case r.GetCommit() != nil:
			if m.Snapshot, _, _, err = g.Commit(); err == nil {
				g.Accept()
				m.Committed, g = true, nil
			}
		}
		if err != nil {
			return Memory{}
		}
	}
	if g != nil { // begun, and perhaps applied
		if next, _, _, err := g.Commit(); err == nil {
			m.Snapshot = next
		}
		m.Committed = false
	}
	return m
}

// Begin notes what is about to be applied. delta leads there from the last one that
// was committed.
func (j *Journal) Begin(next *dataplane.Snapshot, delta dataplane.Delta) error {
	if j.path == "" {
		return nil
	}
	if j.last != nil && j.last.Session == next.Session && next.Generation > j.last.Generation && j.size < 4*j.whole+1<<20 {
		err := j.write(transfer.Begin(next, j.last.Generation, true), j.encoder.Delta(delta))
		if err == nil {
			return nil
		}
	}
	return j.rewrite(next)
}

// rewrite begins the file anew with a whole snapshot.
func (j *Journal) rewrite(next *dataplane.Snapshot) error {
	j.Close()
	if err := os.MkdirAll(filepath.Dir(j.path), 0o700); err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	file, err := os.OpenFile(j.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.file, j.encoder, j.size = file, transfer.NewEncoder(), 0
	err = j.append([]byte(magic))
	if err == nil {
		err = j.write(transfer.Begin(next, 0, true), j.encoder.Snapshot(next))
	}
	if err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		j.Close()
		return errors.Join(fmt.Errorf("journal: %w", err), os.Remove(j.path+".new"))
	}
	j.whole = j.size
	return nil
}

// Commit notes that what was begun is applied.
func (j *Journal) Commit(next *dataplane.Snapshot) error {
	if j.file == nil {
		return nil
	}
	if err := j.append(frame(nil, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Commit{Commit: &pb.Commit{}}})); err != nil {
		j.Close()
		return err
	}
	j.last = next
	return nil
}

// Close ends writing. What is begun next is written whole.
func (j *Journal) Close() {
	if j.file != nil {
		_ = j.file.Close()
		j.file = nil
	}
	j.last = nil
}

// Remove deletes the file.
func (j *Journal) Remove() error {
	j.Close()
	if j.path == "" {
		return nil
	}
	if err := os.Remove(j.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

func (j *Journal) write(begin *pb.Begin, changes func(func(*pb.Change) bool)) error {
	b := frame(nil, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Begin{Begin: begin}})
	for c := range changes {
		b = frame(b, &pb.ReconcileRequest{Step: &pb.ReconcileRequest_Change{Change: c}})
	}
	return j.append(b)
}

func (j *Journal) append(b []byte) error {
	n, err := j.file.Write(b)
	j.size += int64(n)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	return nil
}

// frame appends a message behind its length.
func frame(b []byte, m proto.Message) []byte {
	b = binary.AppendUvarint(b, uint64(proto.Size(m)))
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
	if err != nil {
		return nil // a message of ours that cannot be encoded: the reader finds a broken file
	}
	return b
}
