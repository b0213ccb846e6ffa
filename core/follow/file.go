package follow

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead/fairlead/core/store"
)

// The file, in this order:
//
//	magic      8 bytes, the last one is the version
//	of         what it is a copy of
//	cluster    8 bytes
//	revision   varint
//	current    when it was known to be the newest, in ns since 1970, varint; 0: never
//	number     of keys, varint
//	each key   key, value, create, mod, version, lease
//	SHA-256    of all that
//
// Text has its length, a varint, before it; other numbers are big-endian.
const (
	magic     = "FLCOPY\x00\x01"
	maxFile   = 4 << 30
	damagedAs = ".damaged" // what a file that is set aside ends in
)

var (
	errDamaged = errors.New("follow: the file is damaged")
	errForeign = errors.New("follow: the file is of something else")
)

// encode is the file of a copy.
func encode(of string, c *Copy, current time.Time) []byte {
	b := []byte(magic)
	b = appendText(b, []byte(of))
	b = binary.BigEndian.AppendUint64(b, c.cluster)
	b = binary.AppendVarint(b, c.revision)
	at := int64(0)
	if !current.IsZero() {
		at = current.UnixNano()
	}
	b = binary.AppendVarint(b, at)
	b = binary.AppendUvarint(b, uint64(c.keys.Len()))
	c.keys.Scan(func(key string, kv store.KeyValue) bool {
		b = appendText(appendText(b, []byte(key)), kv.Value)
		for _, n := range []int64{kv.Create, kv.Mod, kv.Version, int64(kv.Lease)} {
			b = binary.AppendVarint(b, n)
		}
		return true
	})
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

func appendText(b, text []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decode reads a file. Its errors wrap errDamaged or errForeign.
func decode(of string, data []byte) (*draft, time.Time, error) {
	fail := func(err error, what string) (*draft, time.Time, error) {
		return nil, time.Time{}, fmt.Errorf("%w: %s", err, what)
	}
	if len(data) < len(magic)+sha256.Size {
		return fail(errDamaged, "it is cut off")
	}
	body, sum := data[:len(data)-sha256.Size], data[len(data)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return fail(errDamaged, "its SHA-256 does not fit")
	}
	if string(body[:len(magic)]) != magic {
		return fail(errForeign, "another version of fairlead wrote it")
	}
	r := &reader{rest: body[len(magic):]}
	if what := string(r.text()); what != of {
		return fail(errForeign, fmt.Sprintf("it is a copy of %q, and this is %q", what, of))
	}
	d := newDraft(r.fixed(), r.number())
	at := r.number()
	for range r.count() {
		kv := store.KeyValue{Key: string(r.text()), Value: bytes.Clone(r.text()), Create: r.number(), Mod: r.number(), Version: r.number(), Lease: store.LeaseID(r.number())}
		if r.short {
			break
		}
		d.keys.Set(kv.Key, kv)
	}
	if r.short || len(r.rest) != 0 {
		return fail(errDamaged, "it has not what it says")
	}
	if at == 0 {
		return d, time.Time{}, nil
	}
	return d, time.Unix(0, at), nil
}

// reader takes a file apart. After an error it yields nothing.
type reader struct {
	rest  []byte
	short bool
}

func (r *reader) take(n uint64) []byte {
	if r.short || n > uint64(len(r.rest)) {
		r.short = true
		return nil
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) text() []byte { return r.take(r.count()) }

func (r *reader) fixed() uint64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (r *reader) count() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || r.short {
		r.short = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) number() int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 || r.short {
		r.short = true
		return 0
	}
	r.rest = r.rest[size:]
	return n
}
