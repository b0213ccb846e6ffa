package sdk

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLogsAreWrittenInOrder(t *testing.T) {
	var out buffer
	w := newLogWriter(&out)
	log := newLogger(w, true, slog.LevelInfo)
	log.Debug("too small")
	log.Info("one", "n", 1)
	log.WithGroup("g").Warn("two", "time", "x")
	w.Close(patience)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("got %q", lines)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	if got["@message"] != "one" || got["@level"] != "info" || got["n"] != 1.0 {
		t.Fatalf("got %v", got)
	}
	if _, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", got["@timestamp"].(string)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
}

// Nobody reads: the provider is not held up, and is told of when somebody does.
func TestLogsThatNobodyReads(t *testing.T) {
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w := newLogWriter(pw)
	line := append(bytes.Repeat([]byte("x"), 1000), '\n')
	for range 1000 { // 1 MB into a pipe of 64 KiB and a queue of 256
		if n, err := w.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	start := time.Now()
	w.Flush(10 * time.Millisecond)
	if d := time.Since(start); d > patience/2 {
		t.Fatalf("Flush took %v", d)
	}
	var got buffer
	read := make(chan struct{})
	go func() { defer close(read); _, _ = io.Copy(&got, r) }()
	w.Close(patience)
	_ = pw.Close()
	receive(t, "the end of the pipe", read)
	if kept := strings.Count(got.String(), "xxx\n"); kept < 200 || kept > 400 {
		t.Fatalf("%d lines were kept", kept)
	}
	if !strings.Contains(got.String(), `"@message":"log lines were dropped, as nobody read standard error","lines":`) {
		t.Fatal("nobody was told")
	}
}

func TestLogsWhoseReaderIsGone(t *testing.T) {
	r, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if _, err := pw.WriteString("x"); err == nil || !strings.Contains(err.Error(), syscall.EPIPE.Error()) {
		t.Fatalf("got %v", err)
	}
	w := newLogWriter(pw)
	for range 1000 {
		_, _ = w.Write([]byte("line\n"))
	}
	w.Close(patience)
	_ = pw.Close()
}
