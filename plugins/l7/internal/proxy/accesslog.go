package proxy

import (
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// waitingLines is how many lines wait for a slow writer before the next
	// ones are lost.
	waitingLines = 4096
	// logBatch is how many bytes are gathered for one write at most.
	logBatch = 64 << 10
)

// accessLog writes a JSON line per request. Requests never wait for it: its one
// goroutine does. The nil accessLog writes nothing.
type accessLog struct {
	to      io.Writer
	lines   chan []byte
	dropped prometheus.Counter
	over    chan struct{}
	once    sync.Once
}

// accessLog returns the log that goes to w: the one in force if it goes there.
func (m *metrics) accessLog(old *options, w io.Writer) *accessLog {
	switch {
	case w == nil:
		return nil
	case old != nil && old.log != nil && old.log.to == w:
		return old.log
	}
	return newAccessLog(w, m.dropped)
}

func newAccessLog(w io.Writer, dropped prometheus.Counter) *accessLog {
	l := &accessLog{to: w, lines: make(chan []byte, waitingLines), dropped: dropped, over: make(chan struct{})}
	go l.run()
	return l
}

// run writes until close, and then what was still there.
func (l *accessLog) run() {
	batch := make([]byte, 0, logBatch)
	for {
		select {
		case line := <-l.lines:
			batch = append(batch[:0], line...)
		case <-l.over:
			select {
			case line := <-l.lines:
				batch = append(batch[:0], line...)
			default:
				return
			}
		}
	gather:
		for len(batch) < logBatch/2 {
			select {
			case line := <-l.lines:
				batch = append(batch, line...)
			default:
				break gather
			}
		}
		if _, err := l.to.Write(batch); err != nil {
			l.dropped.Inc()
		}
	}
}

// put hands a line over, or drops it.
func (l *accessLog) put(line []byte) {
	select {
	case l.lines <- line:
	default:
		l.dropped.Inc()
	}
}

// close ends the goroutine once it has written what waits. It does not wait for
// that: the writer may be stuck.
func (l *accessLog) close() {
	if l != nil {
		l.once.Do(func() { close(l.over) })
	}
}

// entry is what a line says.
type entry struct {
	time              time.Time
	duration          time.Duration
	client, requestID string
	method, host      string
	target, proto     string
	status            int
	in, out           int64 // bytes of the bodies
	service, endpoint string
	backend           string
	tries             int
	reason            Reason
	detail            string // of the reason
	tunnel            bool
}

// appendTo writes the line. Every byte that a client or a backend chose is
// escaped; query strings are left out, as they hold secrets.
func (e *entry) appendTo(b []byte) []byte {
	b = append(b, `{"time":"`...)
	b = e.time.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","msg":"request"`...)
	b = appendText(b, "client", e.client)
	b = appendText(b, "id", e.requestID)
	b = appendText(b, "method", e.method)
	b = appendText(b, "host", e.host)
	b = appendText(b, "path", e.target)
	b = appendText(b, "proto", e.proto)
	b = appendNumber(b, "status", int64(e.status))
	b = appendNumber(b, "bytes_in", e.in)
	b = appendNumber(b, "bytes_out", e.out)
	b = append(b, `,"seconds":`...)
	b = strconv.AppendFloat(b, e.duration.Seconds(), 'f', 6, 64)
	if e.service != "" {
		b = appendText(b, "service", e.service)
	}
	if e.backend != "" {
		b = appendText(b, "endpoint", e.endpoint)
		b = appendText(b, "backend", e.backend)
	}
	b = appendNumber(b, "tries", int64(e.tries))
	if e.reason != ReasonNone {
		b = appendText(b, "reason", string(e.reason))
	}
	if e.detail != "" {
		b = appendText(b, "detail", e.detail)
	}
	if e.tunnel {
		b = append(b, `,"tunnel":true`...)
	}
	return append(b, "}\n"...)
}

func appendNumber(b []byte, key string, n int64) []byte {
	b = append(append(append(b, `,"`...), key...), `":`...)
	return strconv.AppendInt(b, n, 10)
}

// textBytes bounds what one field of a client takes of a line.
const textBytes = 2048

// appendText writes a key and a JSON string. What is not printable ASCII, and
// what is not UTF-8, is written as an escape, so a line stays a line in every
// terminal.
func appendText(b []byte, key, s string) []byte {
	b = append(append(append(b, `,"`...), key...), `":"`...)
	if len(s) > textBytes {
		s = s[:textBytes]
	}
	for len(s) > 0 {
		c := s[0]
		if c < utf8.RuneSelf {
			b = appendByte(b, c)
			s = s[1:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		if r >= 0x10000 {
			r -= 0x10000
			b = appendEscape(b, 0xd800+uint16(r>>10))
			b = appendEscape(b, 0xdc00+uint16(r&0x3ff))
			continue
		}
		b = appendEscape(b, uint16(r))
	}
	return append(b, '"')
}

func appendByte(b []byte, c byte) []byte {
	switch {
	case c == '"' || c == '\\':
		return append(b, '\\', c)
	case c < ' ' || c == 0x7f:
		return appendEscape(b, uint16(c))
	}
	return append(b, c)
}

func appendEscape(b []byte, u uint16) []byte {
	const hex = "0123456789abcdef"
	return append(b, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
}
