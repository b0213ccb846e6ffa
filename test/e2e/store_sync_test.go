package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/history"
	"github.com/fairlead/fairlead/test/scale"
)

// span is a system call, from its entry to its return.
type span struct{ from, to time.Time }

var (
	traceLine = regexp.MustCompile(`^(\d+) +(\d+)\.(\d{6}) (.*)$`)
	syncWhole = regexp.MustCompile(`^f(?:data)?sync\(\d+<([^>]*)>\) += 0 <(\d+\.\d+)>$`)
	syncBegin = regexp.MustCompile(`^f(?:data)?sync\(\d+<([^>]*)> <unfinished \.\.\.>$`)
	syncEnd   = regexp.MustCompile(`^<\.\.\. f(?:data)?sync resumed>\) += 0 <\d+\.\d+>$`)
)

// logSyncs reads what strace has written, and returns when a log was synced.
func logSyncs(trace string) ([]span, error) {
	type begun struct {
		at   time.Time
		file string
	}
	var out []span
	open := map[string]begun{}
	lines := bufio.NewScanner(strings.NewReader(trace))
	for lines.Scan() {
		part := traceLine.FindStringSubmatch(lines.Text())
		if part == nil {
			return nil, fmt.Errorf("what strace says is not understood: %q", lines.Text())
		}
		seconds, _ := strconv.ParseInt(part[2], 10, 64)
		micros, _ := strconv.ParseInt(part[3], 10, 64)
		at := time.Unix(seconds, micros*1000)
		call := begun{at: at}
		switch text := part[4]; {
		case syncWhole.MatchString(text):
			of := syncWhole.FindStringSubmatch(text)
			took, _ := strconv.ParseFloat(of[2], 64)
			call.file = of[1]
			at = at.Add(time.Duration(took * float64(time.Second)))
		case syncBegin.MatchString(text):
			open[part[1]] = begun{at, syncBegin.FindStringSubmatch(text)[1]}
			continue
		case syncEnd.MatchString(text):
			call = open[part[1]]
		default:
			continue // an error, a signal, the end of a thread
		}
		if strings.HasSuffix(call.file, ".wal") {
			out = append(out, span{call.at, at})
		}
	}
	return out, lines.Err()
}

func TestLogSyncs(t *testing.T) {
	got, err := logSyncs(`7 100.000100 fdatasync(5</d/raft/1.wal>) = 0 <0.000050>
8 100.000200 fdatasync(5</d/raft/1.wal> <unfinished ...>
9 100.000210 fsync(6</d/peers.json>) = 0 <0.000001>
8 100.000300 <... fdatasync resumed>) = 0 <0.000100>
8 100.000400 fdatasync(5</d/raft/1.wal>) = -1 EIO (Input/output error) <0.000050>
8 100.000500 +++ exited with 0 +++
`)
	at := func(micros int64) time.Time { return time.Unix(100, micros*1000) }
	want := fmt.Sprint([]span{{at(100), at(150)}, {at(200), at(300)}})
	if err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

// TestStoreSyncs: between the call and the acknowledgement of a write the logs of a
// majority are synced, by a system call that begins and ends there.
func TestStoreSyncs(t *testing.T) {
	t.Parallel()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed: Debian package strace")
	}
	f := newStore(t, underTest())
	for _, n := range f.nodes {
		n.under = []string{strace, "-f", "-qq", "-y", "-ttt", "-T", "--seccomp-bpf", "-e", "trace=fdatasync,fsync", "-o", n.dir + ".trace"}
	}
	f.upAll()
	l := f.load(80, 0) // it only reads
	var acks []span
	lost, writes := 0, scale.N(300)
	for i := 0; len(acks) < writes; i++ {
		from := time.Now()
		o := history.Operation{Kind: history.Put, Key: fmt.Sprint(storePrefix, "k", i%storeKeys), Value: fmt.Sprint("alone-", i)}
		if _, err := l.call(storeClients, f.nodes[i%len(f.nodes)], o, 5*time.Second); err != nil {
			if lost++; lost > writes { // a server that is traced may be too slow to lead
				t.Fatal(err)
			}
			continue
		}
		acks = append(acks, span{from, time.Now()})
	}
	l.end()
	var syncs [][]span
	for _, n := range f.nodes {
		trace, err := os.ReadFile(n.dir + ".trace")
		if err != nil {
			t.Fatal(err)
		}
		// The process goes on, and with it the last line.
		of, err := logSyncs(string(trace[:strings.LastIndexByte(string(trace), '\n')+1]))
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d syncs of the log", n.name, len(of))
		syncs = append(syncs, of)
	}
	for i, a := range acks {
		if durable := within(a, syncs); durable < 2 {
			t.Errorf("write %d was acknowledged when %d of 3 servers had synced it", i, durable)
		}
	}
}

// within counts the servers of which a sync lies within a call.
func within(call span, syncs [][]span) int {
	n := 0
	for _, of := range syncs {
		for _, s := range of {
			if s.from.After(call.from) && s.to.Before(call.to) {
				n++
				break
			}
		}
	}
	return n
}
