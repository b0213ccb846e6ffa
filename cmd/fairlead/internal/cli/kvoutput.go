package cli

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// headerJSON is where an answer came from, in the words of etcd.
type headerJSON struct {
	ClusterID uint64 `json:"cluster_id"`
	MemberID  uint64 `json:"member_id"`
	Revision  int64  `json:"revision"`
	RaftTerm  uint64 `json:"raft_term"`
}

// keyValueJSON is one key, in the words of etcd. Bytes are in base64.
type keyValueJSON struct {
	Key     []byte `json:"key"`
	Create  int64  `json:"create_revision"`
	Mod     int64  `json:"mod_revision"`
	Version int64  `json:"version"`
	Value   []byte `json:"value"`
	Lease   int64  `json:"lease"`
}

// rangeJSON is what a get found.
type rangeJSON struct {
	Header headerJSON     `json:"header"`
	KVs    []keyValueJSON `json:"kvs"`
	More   bool           `json:"more"`
	Count  int64          `json:"count"`
}

// putJSON is what a put did.
type putJSON struct {
	Header  headerJSON    `json:"header"`
	Written bool          `json:"written"`
	Prev    *keyValueJSON `json:"prev_kv,omitempty"`
	// Found is what kept the value from being written.
	Found *keyValueJSON `json:"kv,omitempty"`
}

// delJSON is what a del did.
type delJSON struct {
	Header  headerJSON     `json:"header"`
	Deleted int64          `json:"deleted"`
	Prev    []keyValueJSON `json:"prev_kvs,omitempty"`
}

// txnJSON is what a transaction did.
type txnJSON struct {
	Header    headerJSON `json:"header"`
	Succeeded bool       `json:"succeeded"`
	Responses []opJSON   `json:"responses"`
}

// opJSON is the answer of one operation.
type opJSON struct {
	Range *rangeJSON `json:"response_range,omitempty"`
	Put   *putJSON   `json:"response_put,omitempty"`
	Del   *delJSON   `json:"response_delete_range,omitempty"`
}

func toHeaderJSON(h *pb.ResponseHeader) headerJSON {
	return headerJSON{h.GetClusterId(), h.GetMemberId(), h.GetRevision(), h.GetRaftTerm()}
}

func toKeyValueJSON(kv *mvccpb.KeyValue) *keyValueJSON {
	if kv == nil {
		return nil
	}
	return &keyValueJSON{
		Key: append([]byte{}, kv.GetKey()...), Create: kv.GetCreateRevision(), Mod: kv.GetModRevision(), Version: kv.GetVersion(),
		Value: append([]byte{}, kv.GetValue()...), Lease: kv.GetLease(),
	}
}

func toKeyValuesJSON(kvs []*mvccpb.KeyValue) []keyValueJSON {
	out := make([]keyValueJSON, len(kvs))
	for i, kv := range kvs {
		out[i] = *toKeyValueJSON(kv)
	}
	return out
}

func toRangeJSON(r *pb.RangeResponse) *rangeJSON {
	return &rangeJSON{toHeaderJSON(r.GetHeader()), toKeyValuesJSON(r.GetKvs()), r.GetMore(), r.GetCount()}
}

func toDelJSON(r *pb.DeleteRangeResponse) *delJSON {
	return &delJSON{toHeaderJSON(r.GetHeader()), r.GetDeleted(), toKeyValuesJSON(r.GetPrevKvs())}
}

func toTxnJSON(r *pb.TxnResponse) txnJSON {
	out := txnJSON{Header: toHeaderJSON(r.GetHeader()), Succeeded: r.GetSucceeded(), Responses: []opJSON{}}
	for _, o := range r.GetResponses() {
		var op opJSON
		switch {
		case o.GetResponseRange() != nil:
			op.Range = toRangeJSON(o.GetResponseRange())
		case o.GetResponsePut() != nil:
			p := o.GetResponsePut()
			op.Put = &putJSON{Header: toHeaderJSON(p.GetHeader()), Written: true, Prev: toKeyValueJSON(p.GetPrevKv())}
		case o.GetResponseDeleteRange() != nil:
			op.Del = toDelJSON(o.GetResponseDeleteRange())
		}
		out.Responses = append(out.Responses, op)
	}
	return out
}

// print writes text for people.
func (a *app) print(format string, args ...any) error {
	_, err := fmt.Fprintf(a.env.Stdout, format, args...)
	return printed(err)
}

// printed marks an error of writing, so that it is not taken for one of a call.
func printed(err error) error {
	if err == nil {
		return nil
	}
	return saidError{fmt.Errorf("write the answer: %w", err)}
}

// shown is a key or value as text: the bytes themselves, but on a terminal quoted if
// they would steer it.
func (a *app) shown(b []byte) string {
	if a.env.Terminal && !harmless(b, "\n\t") {
		return strconv.Quote(string(b))
	}
	return string(b)
}

// inLine is a key or value as a part of a line.
func inLine(b []byte) string {
	if len(b) == 0 || !harmless(b, "") {
		return strconv.Quote(string(b))
	}
	return string(b)
}

// harmless reports whether all of b can be printed, or is one of these characters.
func harmless(b []byte, others string) bool {
	if !utf8.Valid(b) {
		return false
	}
	for _, r := range string(b) {
		if !strconv.IsPrint(r) && !strings.ContainsRune(others, r) {
			return false
		}
	}
	return true
}

// printPairs prints each key and, on the next line, its value, as etcdctl does.
func (a *app) printPairs(kvs []*mvccpb.KeyValue, keysOnly bool) error {
	for _, kv := range kvs {
		err := a.print("%s\n", a.shown(kv.GetKey()))
		if err == nil && !keysOnly {
			err = a.print("%s\n", a.shown(kv.GetValue()))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
