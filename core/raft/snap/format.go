package snap

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/fairlead/fairlead/core/raft/disk"
)

// output writes a file from its beginning on, and hashes it.
type output struct {
	file disk.File
	at   int64
	hash hash.Hash
}

func (o *output) write(p []byte) error {
	if _, err := o.file.WriteAt(p, o.at); err != nil {
		return err
	}
	o.at += int64(len(p))
	_, _ = o.hash.Write(p)
	return nil
}

// piece writes data in pieces.
func (o *output) piece(data []byte) error {
	for len(data) > 0 {
		n := min(len(data), pieceBytes)
		var head [4]byte
		binary.LittleEndian.PutUint32(head[:], uint32(n))
		if err := o.write(head[:]); err != nil {
			return err
		}
		if err := o.write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// end writes the end of the data and the hash.
func (o *output) end() error {
	if err := o.write(make([]byte, 4)); err != nil {
		return err
	}
	return o.write(o.hash.Sum(nil))
}

func encodeMeta(m Meta) []byte {
	b := binary.AppendUvarint(nil, uint64(len(m.Cluster)))
	b = append(b, m.Cluster...)
	b = binary.AppendUvarint(b, m.Index)
	b = binary.AppendUvarint(b, m.Term)
	return append(b, m.Membership...)
}

func decodeMeta(b []byte) (Meta, error) {
	var m Meta
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			b = nil
			return 0
		}
		b = b[size:]
		return n
	}
	n := number()
	if n > 64 || n > uint64(len(b)) {
		return Meta{}, errors.New("the id of the cluster is too long")
	}
	m.Cluster, b = string(b[:n]), b[n:]
	m.Index, m.Term = number(), number()
	m.Membership = append([]byte(nil), b...)
	return m, nil
}

// input reads a file from its beginning on, and hashes it.
type input struct {
	r    *bufio.Reader
	at   int64
	hash hash.Hash
}

func newInput(r io.Reader) *input {
	return &input{r: bufio.NewReaderSize(r, pieceBytes), hash: sha256.New()}
}

func (i *input) read(n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := io.ReadFull(i.r, b)
	i.at += int64(got)
	if err != nil {
		return nil, fmt.Errorf("%d bytes are missing: %w", n-got, err)
	}
	return b, nil
}

func (i *input) hashed(n int) ([]byte, error) {
	b, err := i.read(n)
	_, _ = i.hash.Write(b)
	return b, err
}

// piece returns the next piece, nil at the end of the data.
func (i *input) piece() ([]byte, error) {
	head, err := i.hashed(4)
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head)
	if n > pieceBytes {
		return nil, fmt.Errorf("a piece of %d bytes", n)
	}
	if n == 0 {
		return nil, nil
	}
	return i.hashed(int(n))
}

// meta reads what is before the data.
func (i *input) meta() (Meta, error) {
	b, err := i.hashed(len(magic))
	if err != nil {
		return Meta{}, err
	}
	if string(b) != magic {
		return Meta{}, fmt.Errorf("it begins with %q, a snapshot with %q", b, magic)
	}
	if b, err = i.piece(); err != nil {
		return Meta{}, err
	}
	return decodeMeta(b)
}

// end reads the hash and what may not be behind it.
func (i *input) end() error {
	want := i.hash.Sum(nil)
	got, err := i.read(hashBytes)
	if err != nil {
		return err
	}
	if string(got) != string(want) {
		return fmt.Errorf("the hash is %x, and should be %x", got[:8], want[:8])
	}
	if _, err := i.r.ReadByte(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the hash")
	}
	return nil
}
