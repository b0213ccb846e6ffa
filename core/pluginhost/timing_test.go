package pluginhost

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead/fairlead/test/transcript"
)

func TestBackoff(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	rule := DefaultTiming().Backoff
	now := time.Unix(1000, 0)
	l := losses{rule: rule}
	// 100 ms, doubled each time, less a fifth at most.
	for i, want := range []time.Duration{100, 200, 400, 800} {
		want *= time.Millisecond
		delay, loop := l.lost(now, 0, rng)
		if loop || delay > want || delay < want*4/5 {
			t.Errorf("loss %d: %v, loop %v; want %v", i+1, delay, loop, want)
		}
		now = now.Add(time.Second)
	}
	// The fifth within 60 s is a crash loop.
	delay, loop := l.lost(now, 0, rng)
	if !loop || delay > rule.Most || delay < rule.Most*4/5 {
		t.Errorf("the fifth: %v, loop %v", delay, loop)
	}
	// Less than sixty seconds of health are none, sixty make it new.
	if delay, loop = l.lost(now, 59*time.Second, rng); !loop || delay < rule.Most*4/5 {
		t.Errorf("after little health: %v, loop %v", delay, loop)
	}
	delay, loop = l.lost(now.Add(time.Second), 60*time.Second, rng)
	if loop || delay > rule.First {
		t.Errorf("after health: %v, loop %v", delay, loop)
	}
	// Losses that are far apart are no loop, but the delay has its bound.
	for range 20 {
		now = now.Add(20 * time.Second)
		if delay, loop = l.lost(now, 0, rng); loop || delay > rule.Most {
			t.Errorf("far apart: %v, loop %v", delay, loop)
		}
	}
	if delay < rule.Most*4/5 {
		t.Errorf("in the end %v", delay)
	}
}

func TestStopFitsIntoFiveSeconds(t *testing.T) {
	d := DefaultTiming()
	if sum := d.Shutdown + d.Exit + d.Terminate + drainTime; sum > 5*time.Second-500*time.Millisecond {
		t.Errorf("a stop takes up to %v", sum)
	}
}

func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 40000)
	r := bufio.NewReaderSize(strings.NewReader("one\r\n\n"+long+"\nbad \xff\nlast"), 4096)
	for _, want := range []string{"one", "", long[:maxLineBytes], "bad \uFFFD", "last"} {
		if got, _ := readLine(r); got != want {
			t.Errorf("got %.20q (%d bytes), want %.20q", got, len(got), want)
		}
	}
}

func TestFirstLineIsBounded(t *testing.T) {
	var w bytes.Buffer
	r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("x", 100000)), readBufferLen)
	if printed := firstLine(r, &w); len(printed) != printedBytes || w.Len() > maxHandshake+1 || !bytes.HasSuffix(w.Bytes(), []byte("\n")) {
		t.Errorf("printed %d bytes, handed on %d", len(printed), w.Len())
	}
}

// The log gets lines with their level and their words, as many as it may.
func TestOutput(t *testing.T) {
	var log transcript.Buffer
	now := time.Unix(1000, 0)
	dropped := prometheus.NewCounter(prometheus.CounterOpts{Name: "x"})
	o := newOutput(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), dropped, func() time.Time { return now })
	for _, line := range []string{
		`{"@level":"warn","@message":"slow","@timestamp":"x","took":"3s"}`, "plain words", "[DEBUG] small", "level=ERROR msg=bad", `{"odd": 1}`, "{broken",
		"panic: no way", "goroutine 1 [running]:",
	} {
		o.add(fromStderr, line)
	}
	o.add(fromStdout, "after the panic")
	o.close()
	for _, want := range []string{
		`level=WARN msg=slow took=3s from=stderr`, `level=INFO msg="plain words"`, `level=DEBUG msg="[DEBUG] small"`, `level=ERROR msg="level=ERROR msg=bad"`,
		`level=INFO msg="{\"odd\": 1}"`, `level=INFO msg={broken`, `level=ERROR msg="panic: no way"`, `level=ERROR msg="goroutine 1 [running]:"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in:\n%s", want, log.String())
		}
	}

	// What is too much is counted, and told when there is room again.
	var second transcript.Buffer
	o = newOutput(slog.New(slog.NewTextHandler(&second, nil)), dropped, func() time.Time { return now })
	o.tokens = 2
	for i := range 10 {
		o.add(fromStderr, fmt.Sprint("line ", i))
	}
	now = now.Add(time.Second)
	o.add(fromStderr, "again")
	o.close()
	if !strings.Contains(second.String(), "lines=8") || strings.Contains(second.String(), "line 5") || !strings.Contains(second.String(), "again") {
		t.Errorf("log:\n%s", second.String())
	}
	if last := o.last(); len(last) != 11 || last[10] != "again" {
		t.Errorf("last words: %q", last)
	}
}

func TestLastWordsAreBounded(t *testing.T) {
	o := newOutput(slog.New(slog.DiscardHandler), prometheus.NewCounter(prometheus.CounterOpts{Name: "x"}), time.Now)
	for i := range 1000 {
		o.add(fromStderr, fmt.Sprint(i))
	}
	o.close()
	if last := o.last(); len(last) != lastWords || last[lastWords-1] != "999" {
		t.Errorf("last words: %q", last)
	}
}

// A log that takes nothing is no reason for a plugin to wait.
func TestSlowLogDoesNotBlock(t *testing.T) {
	gate := make(chan struct{})
	o := newOutput(slog.New(slog.NewTextHandler(gated{gate}, nil)), prometheus.NewCounter(prometheus.CounterOpts{Name: "x"}), time.Now)
	for range 2 * (waitingLines + linesBurst) {
		o.add(fromStderr, "line")
	}
	close(gate)
	o.close()
}

type gated struct{ gate chan struct{} }

func (g gated) Write(p []byte) (int, error) { <-g.gate; return len(p), nil }

func TestParseBeganAt(t *testing.T) {
	stat := "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 9"
	if n, err := parseBeganAt(stat); err != nil || n != 4711 {
		t.Errorf("got %d, %v", n, err)
	}
	for _, bad := range []string{"", "7", "7 (x) S 1"} {
		if _, err := parseBeganAt(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestChildEnviron(t *testing.T) {
	got := childEnviron([]string{"TZ=a", "TZ=b", "SECRET=x", "FAIRLEAD_CLUSTER_SECRET_FILE=/s", "FAIRLEAD_CLUSTER_NAME=x"}, "/d", "/d/x.sock", 3, true)
	want := []string{"TZ=b", "PATH=" + defaultPath, "PLUGIN_UNIX_SOCKET_DIR=/d", "FAIRLEAD_HOST_FD=3", "FAIRLEAD_ON_HOST_LOSS=serve", "FAIRLEAD_SERVE_SOCKET=/d/x.sock"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
