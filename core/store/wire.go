package store

import (
	"encoding/binary"
	"fmt"
)

// The encodings of this package are lists of unsigned varints and of byte
// strings with their length before them. What a number stands for is never
// changed, and numbers are only ever added: entries of older versions stay in
// logs and snapshots.

func appendInt(b []byte, n int64) []byte { return binary.AppendVarint(b, n) }

func appendUint(b []byte, n uint64) []byte { return binary.AppendUvarint(b, n) }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendBytes[T ~string | ~[]byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// decoder reads what the functions above wrote. After a failure it yields zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrDamaged, what)
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail("a number is cut off or too large")
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) int() int64 {
	n, size := binary.Varint(d.b)
	if size <= 0 {
		d.fail("a number is cut off or too large")
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail("cut off")
		return 0
	}
	c := d.b[0]
	d.b = d.b[1:]
	return c
}

func (d *decoder) bool() bool {
	c := d.byte()
	if c > 1 {
		d.fail("a truth value is neither 0 nor 1")
	}
	return c == 1
}

// bytes returns a copy, so that a large input can be let go.
func (d *decoder) bytes() []byte {
	s := d.slice()
	if len(s) == 0 {
		return nil
	}
	return append([]byte(nil), s...)
}

func (d *decoder) string() string { return string(d.slice()) }

func (d *decoder) slice() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail("a string is longer than what is left")
		return nil
	}
	s := d.b[:n:n]
	d.b = d.b[n:]
	return s
}

// count returns the length of a list whose elements take at least size bytes.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail("a list is longer than what is left")
		return 0
	}
	return int(n)
}

// end returns the error, also if something is left over.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail(fmt.Sprintf("%d bytes are left over", len(d.b)))
	}
	return d.err
}
