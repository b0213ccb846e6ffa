package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
)

// A backup is a snapshot for people to keep:
//
//	magic (8) │ length (8, little endian) │ snapshot │ zeros │ SHA-256 of all that
//
// Before the hash its length is a multiple of 512: etcdctl takes anything else for
// a snapshot without a hash.
const (
	backupMagic = "FLBACKUP"
	backupBlock = 512
)

// Backup yields the state as a backup, in pieces that the callee must not keep,
// each with how many bytes follow it.
func (v *View) Backup(yield func(p []byte, remaining uint64) error) error {
	size := uint64(0)
	if err := v.Encode(func(p []byte) error { size += uint64(len(p)); return nil }); err != nil {
		return err
	}
	b := backupWriter{yield: yield, hash: sha256.New()}
	body := uint64(len(backupMagic)) + 8 + size
	padding := (backupBlock - body%backupBlock) % backupBlock
	b.left = body + padding + sha256.Size
	if err := b.write(binary.LittleEndian.AppendUint64([]byte(backupMagic), size)); err != nil {
		return err
	}
	if err := v.Encode(b.write); err != nil {
		return err
	}
	if err := b.write(make([]byte, padding)); err != nil {
		return err
	}
	return b.write(b.hash.Sum(nil))
}

type backupWriter struct {
	yield func([]byte, uint64) error
	hash  hash.Hash
	left  uint64
}

func (b *backupWriter) write(p []byte) error {
	_, _ = b.hash.Write(p)
	b.left -= uint64(len(p))
	return b.yield(p, b.left)
}

// ReadBackup returns the machine that a backup describes. Errors wrap ErrDamaged.
func ReadBackup(data []byte) (*Machine, error) {
	n := len(data) - sha256.Size
	if n < len(backupMagic)+8 || !bytes.HasPrefix(data, []byte(backupMagic)) {
		return nil, fmt.Errorf("store: this is no backup: it has %d bytes and does not begin with %s: %w", len(data), backupMagic, ErrDamaged)
	}
	if sum := sha256.Sum256(data[:n]); !bytes.Equal(sum[:], data[n:]) {
		return nil, fmt.Errorf("store: the backup's hash does not fit: it is cut off or altered: %w", ErrDamaged)
	}
	body := data[len(backupMagic)+8 : n]
	size := binary.LittleEndian.Uint64(data[len(backupMagic):])
	if size > uint64(len(body)) {
		return nil, fmt.Errorf("store: the backup is shorter than it says: %w", ErrDamaged)
	}
	return Decode(body[:size])
}
