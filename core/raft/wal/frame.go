package wal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// The kinds of records. Numbers are only ever added.
const (
	kindMeta  = 1 // of the log, at the head of each segment
	kindHard  = 2
	kindMark  = 3
	kindEntry = 4
	kindEnd   = 5 // of a batch: its number
)

const (
	frameHeadBytes = 16
	// maxPayloadBytes bounds one record: an entry and what describes it.
	maxPayloadBytes = 64 << 20
)

// table is made once for each log: a CRC of the polynomial that CPUs know.
func table() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// writer makes frames, one behind the other.
type writer struct {
	b   []byte
	crc uint32
	t   *crc32.Table
}

// frame adds one record, whose payload fill appends.
func (w *writer) frame(kind byte, fill func([]byte) []byte) {
	at := len(w.b)
	w.b = append(w.b, make([]byte, frameHeadBytes)...)
	w.b = fill(w.b)
	size := len(w.b) - at - frameHeadBytes
	for len(w.b)%8 != 0 {
		w.b = append(w.b, 0)
	}
	head := w.b[at:]
	binary.LittleEndian.PutUint32(head, uint32(size))
	head[4] = kind
	w.crc = chain(w.t, w.crc, head[:8], head[frameHeadBytes:frameHeadBytes+size])
	binary.LittleEndian.PutUint32(head[8:], w.crc)
	if kind == kindEnd {
		binary.LittleEndian.PutUint32(head[12:], crc32.Checksum(head[frameHeadBytes:frameHeadBytes+size], w.t))
	}
}

func chain(t *crc32.Table, before uint32, head, payload []byte) uint32 {
	return crc32.Update(crc32.Update(before, t, head), t, payload)
}

// reader takes frames apart.
type reader struct {
	b   []byte
	at  int
	crc uint32
	t   *crc32.Table
}

// next returns the next record; kind 0 is the end. The error says what is wrong
// at r.at, which then stays.
func (r *reader) next() (kind byte, payload []byte, err error) {
	rest := r.b[r.at:]
	if len(rest) < frameHeadBytes {
		if !zeros(rest) {
			return 0, nil, fmt.Errorf("%d bytes are no frame", len(rest))
		}
		return 0, nil, nil
	}
	size := int(binary.LittleEndian.Uint32(rest))
	if size == 0 {
		if !zeros(rest[:frameHeadBytes]) {
			return 0, nil, fmt.Errorf("a frame without content")
		}
		return 0, nil, nil
	}
	padded := (size + 7) &^ 7
	if size > maxPayloadBytes || padded > len(rest)-frameHeadBytes {
		return 0, nil, fmt.Errorf("a frame of %d bytes, of which %d are there", size, len(rest)-frameHeadBytes)
	}
	payload = rest[frameHeadBytes : frameHeadBytes+size : frameHeadBytes+size]
	want := binary.LittleEndian.Uint32(rest[8:])
	if got := chain(r.t, r.crc, rest[:8], payload); got != want {
		return 0, nil, fmt.Errorf("the checksum is %08x, and should be %08x", want, got)
	}
	alone := uint32(0)
	if rest[4] == kindEnd {
		alone = crc32.Checksum(payload, r.t)
	}
	if binary.LittleEndian.Uint32(rest[12:]) != alone {
		return 0, nil, fmt.Errorf("the checksum of the end does not fit")
	}
	if !zeros(rest[5:8]) || !zeros(rest[frameHeadBytes+size:frameHeadBytes+padded]) {
		return 0, nil, fmt.Errorf("padding is not zero")
	}
	r.crc = want
	r.at += frameHeadBytes + padded
	return rest[4], payload, nil
}

func zeros(b []byte) bool { return withoutZeros(b) == 0 }

// withoutZeros returns how long b is without the zeros at its end. Of a segment that
// is most of it, which is compared in blocks.
func withoutZeros(b []byte) int {
	var block [4096]byte
	end := len(b)
	for end >= len(block) && bytes.Equal(b[end-len(block):end], block[:]) {
		end -= len(block)
	}
	for end > 0 && b[end-1] == 0 {
		end--
	}
	return end
}

// numbers appends unsigned varints.
func numbers(b []byte, all ...uint64) []byte {
	for _, n := range all {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// take reads as many varints as there are places, and returns what is left.
func take(b []byte, places ...*uint64) ([]byte, error) {
	for _, p := range places {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return nil, fmt.Errorf("a record is cut off")
		}
		*p, b = n, b[size:]
	}
	return b, nil
}
