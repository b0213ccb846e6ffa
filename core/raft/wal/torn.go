package wal

import (
	"encoding/binary"
	"hash/crc32"
)

// sectorBytes is what a disk writes as a whole, at least.
const sectorBytes = 512

// torn reports whether what follows the last whole batch of a segment is a batch
// whose write a crash cut short, and so was never confirmed. The batch ends at
// good and has the number batch; the first frame that is wrong is at bad.
//
// Such a write lacks whole sectors, which are the zeros that were there before:
// some in its middle, or all from one on. And no whole batch follows it, as that
// would have been begun only when it was on disk. Everything else is damage. A
// payload with zeros over a whole sector looks like a missing one: in the last
// batch alone, damage beside such a payload cannot be told from a crash.
func torn(b []byte, good, bad int, batch uint64, t *crc32.Table) bool {
	end := good + withoutZeros(b[good:])
	last, found := lastEnd(b[good:end], t)
	switch {
	case found && last > batch+1:
		return false
	case lacksSector(b, good, end):
		return true
	case found:
		return false
	}
	return goesOn(b, bad, sectorAfter(end))
}

// sectorAfter returns where the first sector begins that has nothing before at.
func sectorAfter(at int) int { return (at + sectorBytes - 1) / sectorBytes * sectorBytes }

// lacksSector reports whether a sector between two places is all zeros, or the
// rest of one at the first place.
func lacksSector(b []byte, from, to int) bool {
	for from < to {
		next := min((from/sectorBytes+1)*sectorBytes, len(b))
		if next <= to && zeros(b[from:next]) {
			return true
		}
		from = next
	}
	return false
}

// goesOn reports whether the frame at a place goes on behind a border up to which
// there is something: the rest of it was not written.
func goesOn(b []byte, at, border int) bool {
	if at+frameHeadBytes > border {
		return true
	}
	size := int(binary.LittleEndian.Uint32(b[at:]))
	if size == 0 || size > maxPayloadBytes || b[at+4] == kindEnd && size > binary.MaxVarintLen64 {
		return false
	}
	return at+frameHeadBytes+size > border
}

// lastEnd returns the number of the last batch whose end is somewhere in rest. It
// does not need the frames before: an end has a checksum of its own.
func lastEnd(rest []byte, t *crc32.Table) (number uint64, found bool) {
	for at := 0; at+frameHeadBytes < len(rest); at += 8 {
		size := int(binary.LittleEndian.Uint32(rest[at:]))
		if rest[at+4] != kindEnd || size == 0 || size > binary.MaxVarintLen64 || at+frameHeadBytes+size > len(rest) {
			continue
		}
		payload := rest[at+frameHeadBytes : at+frameHeadBytes+size]
		if binary.LittleEndian.Uint32(rest[at+12:]) != crc32.Checksum(payload, t) {
			continue
		}
		if _, err := take(payload, &number); err == nil {
			found = true
		}
	}
	return number, found
}
