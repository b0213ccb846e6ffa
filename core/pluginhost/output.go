package pluginhost

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	lastWords     = 64       // lines that are kept for the case of a crash
	maxLineBytes  = 8 << 10  // of one line; the rest is cut off
	linesPerS     = 100      // that reach the log
	linesBurst    = 500      // at once
	waitingLines  = 128      // for a log that is slow
	printedBytes  = 512      // of standard output, kept for the error
	maxHandshake  = 4 << 10  // bytes of the handshake's line
	readBufferLen = 16 << 10 // of a pipe
)

// output takes what a child writes. It reads as fast as the child writes: what
// the log cannot take is counted and dropped.
type output struct {
	log     *slog.Logger
	dropped prometheus.Counter
	now     func() time.Time
	lines   chan logLine
	written chan struct{} // closed when the last line is in the log

	mu     sync.Mutex
	ring   []string // last words, oldest first
	panics bool     // a panic began: what follows is its stack

	tokens float64
	filled time.Time
	lost   int
}

type logLine struct {
	level slog.Level
	text  string
	from  string
	lost  int
}

func newOutput(log *slog.Logger, dropped prometheus.Counter, now func() time.Time) *output {
	o := &output{
		log: log, dropped: dropped, now: now, lines: make(chan logLine, waitingLines), written: make(chan struct{}),
		tokens: linesBurst, filled: now(),
	}
	go o.write()
	return o
}

// close waits for what is on its way to the log. Nobody adds after it.
func (o *output) close() {
	close(o.lines)
	<-o.written
}

func (o *output) write() {
	defer close(o.written)
	for l := range o.lines {
		if l.lost > 0 {
			o.log.Warn("the plugin writes more than the log takes; lines are missing here", "lines", l.lost)
		}
		text, attrs := fields(l.text)
		o.relay(l.level, text, append(attrs, "from", l.from)...)
	}
}

// relay logs in the plugin's own words.
func (o *output) relay(level slog.Level, text string, attrs ...any) {
	ctx, h := context.Background(), o.log.Handler()
	if !h.Enabled(ctx, level) {
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.Add(attrs...)
	_ = h.Handle(ctx, r) // as slog does
}

// fields takes apart a line as the SDK and hclog write them for a host.
func fields(line string) (message string, attrs []any) {
	if !strings.HasPrefix(line, "{") {
		return line, nil
	}
	var all map[string]any
	if json.Unmarshal([]byte(line), &all) != nil {
		return line, nil
	}
	message, ok := all["@message"].(string)
	if !ok {
		return line, nil
	}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if !strings.HasPrefix(key, "@") {
			attrs = append(attrs, key, all[key])
		}
	}
	return message, attrs
}

// last returns the last words.
func (o *output) last() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.ring...)
}

// add takes one line.
func (o *output) add(from, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ring) == lastWords {
		copy(o.ring, o.ring[1:])
		o.ring = o.ring[:lastWords-1]
	}
	o.ring = append(o.ring, text)
	if !o.take() {
		o.drop()
		return
	}
	select {
	case o.lines <- logLine{level: o.level(from, text), text: text, from: from, lost: o.lost}:
		o.lost = 0
	default:
		o.drop()
	}
}

func (o *output) drop() {
	o.lost++
	o.dropped.Inc()
}

func (o *output) take() bool {
	now := o.now()
	o.tokens = min(linesBurst, o.tokens+now.Sub(o.filled).Seconds()*linesPerS)
	o.filled = now
	if o.tokens < 1 {
		return false
	}
	o.tokens--
	return true
}

// level guesses how bad a line is: by the words of slog's and hclog's two forms.
func (o *output) level(from, text string) slog.Level {
	for _, start := range []string{"panic: ", "fatal error: ", `{"panic":`, "SIGSEGV"} {
		o.panics = o.panics || strings.HasPrefix(text, start)
	}
	if o.panics {
		return slog.LevelError
	}
	head := text[:min(len(text), 160)]
	for _, l := range []struct {
		level slog.Level
		words []string
	}{
		{slog.LevelError, []string{"level=ERROR", `"level":"ERROR"`, `"@level":"error"`, "[ERROR]"}},
		{slog.LevelWarn, []string{"level=WARN", `"level":"WARN"`, `"@level":"warn"`, "[WARN]"}},
		{slog.LevelDebug, []string{"level=DEBUG", `"level":"DEBUG"`, `"@level":"debug"`, "[DEBUG]"}},
	} {
		for _, w := range l.words {
			if strings.Contains(head, w) {
				return l.level
			}
		}
	}
	if from == fromStdout {
		return slog.LevelWarn // nothing should be there
	}
	return slog.LevelInfo
}

const (
	fromStdout = "stdout"
	fromStderr = "stderr"
)

// copyLines reads until the end or an error.
func (o *output) copyLines(from string, r *bufio.Reader) {
	for {
		text, err := readLine(r)
		if text != "" {
			o.add(from, text)
		}
		if err != nil {
			return
		}
	}
}

// readLine returns the next line, cut to maxLineBytes, without its end.
func readLine(r *bufio.Reader) (string, error) {
	var b strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		if room := maxLineBytes - b.Len(); room > 0 {
			b.Write(part[:min(len(part), room)])
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return strings.TrimRight(strings.ToValidUTF8(b.String(), "\uFFFD"), "\r\n"), err
		}
	}
}

// firstLine reads the line of the handshake into w, without its end if it is
// longer than any handshake, and returns the beginning of what it read.
func firstLine(r *bufio.Reader, w io.Writer) (printed string) {
	line, err := r.ReadSlice('\n')
	if len(line) > maxHandshake {
		line = append(line[:maxHandshake:maxHandshake], '\n')
	}
	printed = string(line[:min(len(line), printedBytes)])
	if err == nil || len(line) > 0 {
		_, _ = w.Write(line)
	}
	return strings.TrimRight(strings.ToValidUTF8(printed, "\uFFFD"), "\r\n")
}
