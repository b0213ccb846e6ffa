package store

import (
	"errors"
	"fmt"
)

// refusals are the errors of results by their number on the wire, less one.
func refusals() []error {
	return []error{
		ErrCompacted, ErrFutureRevision, ErrEmptyKey, ErrKeyNotFound, ErrValueProvided, ErrLeaseProvided, ErrDuplicateKey, ErrTooManyOps,
		ErrTooLarge, ErrLeaseNotFound, ErrLeaseExists, ErrLeaseTTL, ErrNoSpace, ErrFenced, ErrClientUnknown, ErrResultGone, ErrInvalid,
		ErrClientBusy,
	}
}

// EncodeResult returns the encoding of a result.
func EncodeResult(r Result) []byte { return appendResult(nil, r) }

// DecodeResult reads what EncodeResult wrote. Errors wrap ErrDamaged.
func DecodeResult(data []byte) (Result, error) {
	d := decoder{b: data}
	r := d.result()
	if err := d.end(); err != nil {
		return Result{}, fmt.Errorf("store: a result of %d bytes: %w", len(data), err)
	}
	return r, nil
}

func appendResult(b []byte, r Result) []byte {
	b = appendUint(b, numberOf(r.Err))
	b = appendBool(appendInt(b, r.Revision), r.Repeated)
	return appendOpResult(b, r.Op)
}

// numberOf returns what an error is on the wire, 0 if there is none.
func numberOf(err error) uint64 {
	if err == nil {
		return 0
	}
	for i, refusal := range refusals() {
		if errors.Is(err, refusal) {
			return uint64(i + 1)
		}
	}
	return 0
}

func (d *decoder) result() Result {
	var r Result
	if n := d.uint(); n > 0 {
		if all := refusals(); n <= uint64(len(all)) {
			r.Err = all[n-1]
		} else {
			d.fail(fmt.Sprintf("an error of number %d, which this version does not know", n))
		}
	}
	r.Revision, r.Repeated = d.int(), d.bool()
	r.Op = d.opResult(0)
	return r
}

func appendOpResult(b []byte, r OpResult) []byte {
	switch {
	case r.Range != nil:
		b = appendKVs(append(b, kindRange), r.Range.KVs)
		b = appendInt(appendBool(b, r.Range.More), r.Range.Count)
	case r.Put != nil:
		var prev []KeyValue
		if r.Put.Prev != nil {
			prev = []KeyValue{*r.Put.Prev}
		}
		b = appendKVs(append(b, kindPut), prev)
	case r.Delete != nil:
		b = appendInt(appendKVs(append(b, kindDelete), r.Delete.Prev), r.Delete.Deleted)
	case r.Txn != nil:
		b = appendBool(append(b, kindTxn), r.Txn.Succeeded)
		b = appendUint(b, uint64(len(r.Txn.Results)))
		for _, inner := range r.Txn.Results {
			b = appendOpResult(b, inner)
		}
	default:
		b = append(b, 0)
	}
	return b
}

func (d *decoder) opResult(depth int) OpResult {
	if depth > MaxTxnOps {
		d.fail("results are too deep")
		return OpResult{}
	}
	switch kind := d.byte(); kind {
	case 0:
		return OpResult{}
	case kindRange:
		return OpResult{Range: &RangeResult{KVs: d.kvs(), More: d.bool(), Count: d.int()}}
	case kindPut:
		out := &PutResult{}
		if prev := d.kvs(); len(prev) > 0 {
			out.Prev = &prev[0]
		}
		return OpResult{Put: out}
	case kindDelete:
		return OpResult{Delete: &DeleteResult{Prev: d.kvs(), Deleted: d.int()}}
	case kindTxn:
		out := &TxnResult{Succeeded: d.bool()}
		out.Results = list(d, 1, func() OpResult { return d.opResult(depth + 1) })
		return OpResult{Txn: out}
	default:
		d.fail(fmt.Sprintf("a result of kind %d, which this version does not know", kind))
		return OpResult{}
	}
}

func appendKVs(b []byte, kvs []KeyValue) []byte {
	b = appendUint(b, uint64(len(kvs)))
	for _, kv := range kvs {
		b = appendBytes(appendBytes(b, kv.Key), kv.Value)
		b = appendVersion(b, kv.Create, kv.Mod, kv.Version, kv.Lease)
	}
	return b
}

func (d *decoder) kvs() []KeyValue {
	return list(d, 6, func() KeyValue {
		kv := KeyValue{Key: d.string(), Value: d.bytes()}
		kv.Create, kv.Mod, kv.Version, kv.Lease = d.version()
		return kv
	})
}

func appendVersion(b []byte, create, mod, number int64, lease LeaseID) []byte {
	return appendInt(appendInt(appendInt(appendInt(b, create), mod), number), int64(lease))
}

func (d *decoder) version() (create, mod, number int64, lease LeaseID) {
	return d.int(), d.int(), d.int(), LeaseID(d.int())
}
