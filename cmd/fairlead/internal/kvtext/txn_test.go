package kvtext

import (
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

// What etcdctl takes means the same here.
func TestParseTxn(t *testing.T) {
	const text = `mod("key1") > "0"
value("a\n\x00\"b") = "say \"hi\""
ver("a") != 3
c("a") < "4"
lease("a") = "a0"

put key1 "over written" --lease 1f --prev-kv
  put 'it "is"' ""
get a --prefix --limit 3 --rev 7 --keys-only

del a b
del a --from-key --prev-kv
get "" --prefix --count --serializable --sort-by mod --descending
get a b`
	want := `
compare {target: MOD result: GREATER key: "key1" mod_revision: 0}
compare {target: VALUE result: EQUAL key: "a\n\000\"b" value: "say \"hi\""}
compare {target: VERSION result: NOT_EQUAL key: "a" version: 3}
compare {target: CREATE result: LESS key: "a" create_revision: 4}
compare {target: LEASE result: EQUAL key: "a" lease: 160}
success {request_put {key: "key1" value: "over written" lease: 31 prev_kv: true}}
success {request_put {key: "it \"is\""}}
success {request_range {key: "a" range_end: "b" limit: 3 revision: 7 keys_only: true}}
failure {request_delete_range {key: "a" range_end: "b"}}
failure {request_delete_range {key: "a" range_end: "\000" prev_kv: true}}
failure {request_range {key: "\000" range_end: "\000" count_only: true serializable: true sort_target: MOD sort_order: DESCEND}}
failure {request_range {key: "a" range_end: "b"}}
`
	var expected pb.TxnRequest
	if err := prototext.Unmarshal([]byte(want), &expected); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", "\n", "\n\n\n"} {
		got, err := ParseTxn([]byte(text + end))
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, &expected) {
			t.Errorf("got\n%s", prototext.Format(got))
		}
	}
	// Parts may be empty, and those at the end absent.
	for text, n := range map[string][3]int{
		"\nput a 1":            {0, 1, 0},
		"\n\nput a 1\n":        {0, 0, 1},
		`ver("a") = 0`:         {1, 0, 0},
		"ver(\"a\") = 0\n\n\n": {1, 0, 0},
	} {
		r, err := ParseTxn([]byte(text))
		if err != nil || [3]int{len(r.Compare), len(r.Success), len(r.Failure)} != n {
			t.Errorf("%q: %v, %v, want %v", text, r, err, n)
		}
	}
}

func TestParseTxnRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "the transaction is empty",
		"\n\n\n":                      "the transaction is empty",
		`mod("a") ~ 1`:                "line 1: \"mod(\\\"a\\\") ~ 1\" is no compare",
		`mod(a) = 1`:                  "is no compare",
		`mod("a") = "1" "2"`:          "is no compare",
		`size("a") = 1`:               `"size" is nothing to compare`,
		`mod("a") = x`:                `"x" is not a whole number`,
		`mod("a\q") = 1`:              "the key is not quoted",
		`val("a") = "\q"`:             "the value is not quoted",
		"\n\nput a":                   "line 3: put wants KEY and VALUE, got 1 words",
		"\nput a b c":                 "put wants KEY and VALUE, got 3 words",
		"\nput '' b":                  "line 2: the key is empty",
		"\nset a b":                   `unknown operation "set": want get, put or del`,
		"\nget":                       "get wants KEY [RANGE_END], got 0 words",
		"\nget a --nope":              "get: unknown flag: --nope",
		"\nget a --limit x":           "invalid argument",
		"\nget a --sort-by size":      `--sort-by is "size"`,
		"\nget a --limit -1":          "--limit is -1",
		"\nget a --rev -1":            "--rev is -1",
		"\nget a --count --keys-only": "not both",
		"\nget a ''":                  "the range end is empty",
		"\nget b a":                   "the range ends before it begins",
		"\nget a b --prefix":          "give one of",
		"\ndel a b c":                 "del wants KEY [RANGE_END], got 3 words",
		"\ndel ''":                    "the key is empty",
		"\nput a 'b":                  "a quote is not closed: 'b",
		"\nput a \"b":                 "a quote is not closed",
		"\nput a \"\\q\"":             "quoted as in Go",
		"\nput \"a\"b c":              "a blank is missing before b c",
		"\nput a b --lease 0":         "is no id of a lease",
		"\nput a b --lease -5":        "is no id of a lease",
		"\nput a 1\n\n\nput a 1":      "line 5: this is after the third part",
	} {
		r, err := ParseTxn([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want an error with %q", text, r, err, want)
		}
	}
}

func TestPrefixEnd(t *testing.T) {
	for prefix, want := range map[string]string{"a": "b", "a\xff": "b", "\xff\xff": "\x00", "": "\x00", "az": "a{"} {
		if got := string(prefixEnd(prefix)); got != want {
			t.Errorf("the end of %q is %q, want %q", prefix, got, want)
		}
	}
}
