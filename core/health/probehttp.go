package health

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
)

const (
	// headerBytes bounds the head of an answer, and later what the body may take
	// on the wire up to MaxOutputBytes of it.
	headerBytes = 64 << 10
	// interim bounds the 1xx answers before the real one.
	interim = 8
)

// reader reads one answer at a time, bounded in bytes.
type reader struct {
	from bounded
	buf  *bufio.Reader
	out  []byte
}

func newReader() *reader {
	h := &reader{out: make([]byte, 0, MaxOutputBytes)}
	h.buf = bufio.NewReaderSize(&h.from, 4<<10)
	return h
}

// errTooLong is read behind the last byte that is allowed.
var errTooLong = errors.New("it does not end")

// bounded reads at most so many bytes, and remembers how it ended: the parser
// takes what came of a line before an error for the whole of it.
type bounded struct {
	from io.Reader
	left int
	err  error
}

// Read is io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.err = errTooLong
		return 0, b.err
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	if err != nil {
		b.err = err
	}
	return n, err
}

func httpRequest(e *entry) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: %s\r\nAccept: */*\r\nConnection: close\r\n\r\n",
		e.check.Path, e.target, userAgent)
}

// readHTTP passes if the status is one of 200 to 399 and the answer's body, or
// its first MaxOutputBytes, come whole. last is the output of the probe before.
func (h *reader) readHTTP(from io.Reader, last string) (outcome, error) {
	status, err := h.read(from)
	if err != nil {
		return outcome{}, err
	}
	out := outcome{result: resultStatus}
	if status >= 200 && status <= 399 {
		out.result = resultPass
	}
	if out.output = last; last != string(h.out) {
		out.output = clip(string(h.out))
	}
	return out, nil
}

// prefixed reads what came already, then the rest.
type prefixed struct {
	got  []byte
	rest io.Reader
}

// Read is io.Reader.
func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.got) == 0 {
		return p.rest.Read(b)
	}
	n := copy(b, p.got)
	p.got = p.got[n:]
	return n, nil
}

// errMore is read behind what came of an answer so far.
var errMore = errors.New("there is more to come")

// soFar ends what came so far.
type soFar struct{}

// Read is io.Reader.
func (soFar) Read([]byte) (int, error) { return 0, errMore }

// read returns the status, and leaves in h.out what is to be shown of the
// answer.
func (h *reader) read(from io.Reader) (int, error) {
	h.from = bounded{from: from, left: headerBytes}
	h.buf.Reset(&h.from)
	answer, err := h.head()
	if err != nil {
		return 0, err
	}
	h.from.left = headerBytes
	h.out = append(h.out[:0], answer.Status...)
	blank := len(h.out)
	h.out = append(h.out, ": "...)
	begin := len(h.out)
	for len(h.out) < MaxOutputBytes {
		n, err := answer.Body.Read(h.out[len(h.out):MaxOutputBytes])
		h.out = h.out[:len(h.out)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && h.from.err != nil && !errors.Is(h.from.err, io.EOF) {
			err = h.from.err
		}
		if err != nil {
			return 0, fmt.Errorf("after %s, the body broke off: %w", answer.Status, err)
		}
	}
	if len(h.out) == begin {
		h.out = h.out[:blank]
	}
	return answer.StatusCode, nil
}

// head reads up to the end of the header of the final answer.
func (h *reader) head() (*http.Response, error) {
	for range interim {
		answer, err := http.ReadResponse(h.buf, nil)
		switch {
		case err == nil:
		case errors.Is(h.from.err, errTooLong):
			return nil, fmt.Errorf("the header is longer than %d bytes", headerBytes)
		case errors.Is(h.from.err, io.EOF):
			return nil, errors.New("the connection ended before the answer did")
		case h.from.err != nil:
			return nil, h.from.err
		default:
			return nil, fmt.Errorf("the answer cannot be read: %w", err)
		}
		if answer.StatusCode >= 200 || answer.StatusCode == http.StatusSwitchingProtocols {
			return answer, nil
		}
	}
	return nil, fmt.Errorf("more than %d interim answers", interim)
}
