package store

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts plays the scripts of testdata/scripts. Each line of a command is one
// entry of the log. `go test ./core/store -run TestScripts -rewrite` writes what
// happens into them.
//
//	do        put K V [lease=ID] | del K [END] | get K [END] [at=REVISION]
//	          if K=VERSION then put K V else del K
//	          compact REVISION | grant ID SECONDS | revoke ID
//	          register CLIENT | CLIENT#SEQUENCE put K V …
//	          TERM: revoke ID … (a command that is fenced)
//	term N    the entries to come are of that term
//	watch     K [END] from=REVISION
//	restart   go on from a snapshot
//
// END is exclusive; * stands for no end.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := newScript(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t = t
			var out strings.Builder
			switch d.Cmd {
			case "do":
				for line := range strings.Lines(d.Input) {
					line = strings.TrimSpace(line)
					fmt.Fprintf(&out, "%s: %s\n", line, tell(s.do(parse(t, strings.Fields(line)))))
				}
			case "term":
				term, err := strconv.ParseUint(d.CmdArgs[0].String(), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				s.term = term
			case "watch":
				for line := range strings.Lines(d.Input) {
					words := strings.Fields(line)
					words, from := option(t, words, "from")
					fmt.Fprintf(&out, "%s:\n%s", strings.TrimSpace(line), watch(s.m.View(), rangeOf(words), from))
				}
			case "restart":
				s.m = restored(t, s.m.View())
			default:
				t.Fatalf("%s: %s is no command", d.Pos, d.Cmd)
			}
			return out.String()
		})
	})
}

func number(t *testing.T, word string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// option takes name=N out of words; 0 if it is not there.
func option(t *testing.T, words []string, name string) (left []string, n int64) {
	t.Helper()
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, name+"="); ok {
			n = number(t, v)
		} else {
			left = append(left, w)
		}
	}
	return left, n
}

func rangeOf(words []string) Range {
	r := Range{Key: words[0]}
	if len(words) > 1 {
		r.End = words[1]
		if r.End == "*" {
			r.End = FromKey
		}
	}
	return r
}

// parse reads a command.
func parse(t *testing.T, words []string) Command {
	t.Helper()
	if term, ok := strings.CutSuffix(words[0], ":"); ok {
		c := parse(t, words[1:])
		c.Term = uint64(number(t, term))
		return c
	}
	if client, sequence, ok := strings.Cut(words[0], "#"); ok {
		c := parse(t, words[1:])
		c.Client = &Client{ID: clientOf(client), Sequence: uint64(number(t, sequence))}
		return c
	}
	switch words[0] {
	case "compact":
		return Command{Compact: &Compact{Revision: number(t, words[1])}}
	case "grant":
		return Command{Grant: &Grant{ID: LeaseID(number(t, words[1])), TTLSeconds: number(t, words[2])}}
	case "revoke":
		return Command{Revoke: &Revoke{ID: LeaseID(number(t, words[1]))}}
	case "register":
		return Command{Client: &Client{ID: clientOf(words[1])}, Register: &Register{}}
	}
	return of(parseOp(t, words))
}

func clientOf(name string) (id ClientID) {
	copy(id[:], name)
	return id
}

func parseOp(t *testing.T, words []string) Op {
	t.Helper()
	words, lease := option(t, words, "lease")
	words, at := option(t, words, "at")
	switch words[0] {
	case "put":
		return Op{Put: &PutOp{Key: words[1], Value: []byte(words[2]), Lease: LeaseID(lease)}}
	case "get":
		return Op{Range: &RangeOp{Range: rangeOf(words[1:]), Revision: at}}
	case "del":
		return Op{Delete: &DeleteOp{Range: rangeOf(words[1:])}}
	case "if":
		key, version, _ := strings.Cut(words[1], "=")
		then, other, _ := strings.Cut(strings.Join(words[3:], " "), " else ")
		return Op{Txn: &TxnOp{
			Compares: []Compare{{Range: Range{Key: key}, Target: TargetVersion, Number: number(t, version)}},
			Then:     []Op{parseOp(t, strings.Fields(then))}, Else: []Op{parseOp(t, strings.Fields(other))},
		}}
	}
	t.Fatalf("%q is no operation", words)
	return Op{}
}

// tell prints a result.
func tell(r Result) string {
	out := fmt.Sprintf("revision %d", r.Revision)
	if r.Repeated {
		out += ", as before"
	}
	if r.Err != nil {
		return out + ", " + r.Err.Error()
	}
	return out + tellOp(r.Op)
}

func tellOp(r OpResult) string {
	switch {
	case r.Range != nil:
		out := fmt.Sprintf(", %d there", r.Range.Count)
		for _, kv := range r.Range.KVs {
			out += " " + tellKV(kv)
		}
		return out
	case r.Delete != nil:
		return fmt.Sprintf(", %d deleted", r.Delete.Deleted)
	case r.Txn != nil:
		return fmt.Sprintf(", held: %v", r.Txn.Succeeded) + tellOp(r.Txn.Results[0])
	}
	return ""
}

func tellKV(kv KeyValue) string {
	if kv.Deleted() {
		return fmt.Sprintf("%s gone (%d)", kv.Key, kv.Mod)
	}
	out := fmt.Sprintf("%s=%s (%d-%d, version %d", kv.Key, kv.Value, kv.Create, kv.Mod, kv.Version)
	if kv.Lease != 0 {
		out += fmt.Sprintf(", lease %d", kv.Lease)
	}
	return out + ")"
}

func watch(v *View, r Range, from int64) string {
	var out strings.Builder
	err := v.Since(User, r, from, func(e Event) bool {
		fmt.Fprintf(&out, "  %s", tellKV(e.KV))
		if e.Prev != nil {
			fmt.Fprintf(&out, " after %s", tellKV(*e.Prev))
		}
		out.WriteByte('\n')
		return true
	})
	if err != nil {
		fmt.Fprintf(&out, "  %v\n", err)
	}
	return out.String()
}
