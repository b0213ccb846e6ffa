package http1

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
)

// Scanner follows the requests of one connection. It allocates when a
// connection's Host changes, and nothing else.
type Scanner struct {
	limits   Limits
	state    state
	refusal  *Refusal
	requests int64 // heads that passed
	upgrades int64 // of them, for an upgrade

	// Of the section (head, chunk size, trailers) that data begins with.
	line  int // where the current line begins
	seen  int // up to where there is no line feed in it
	lines int // complete ones

	head   head
	host   []byte // the last one that was found good
	left   uint64 // of a body of known length, or a chunk
	excess int64  // of the framing of a chunked body
}

type state uint8

const (
	inHead state = iota
	inBody
	inChunkSize
	inChunk
	inChunkEnd
	inTrailers
	awaiting // what an upgrade leads to
	raw      // HTTP/2 follows
)

// NewScanner returns a scanner for the beginning of a connection.
func NewScanner(limits Limits) *Scanner { return &Scanner{limits: limits.withDefaults()} }

// Feed looks at data: the bytes that did not pass before, and what came after
// them. It returns how many of them may pass; the others have to come again,
// with more. With a refusal, what does not pass never will, and the connection
// is at its end. It is the same in all later calls.
func (s *Scanner) Feed(data []byte) (pass int, refusal *Refusal) {
	for s.refusal == nil {
		var n int
		var more bool
		switch rest := data[pass:]; s.state {
		case inHead:
			n, more = s.feedHead(rest)
		case inBody, inChunk:
			n, more = s.feedBody(rest)
		case inChunkSize:
			n, more = s.feedChunkSize(rest)
		case inChunkEnd:
			n, more = s.feedChunkEnd(rest)
		case inTrailers:
			n, more = s.feedTrailers(rest)
		case awaiting:
			return pass, nil
		case raw:
			return len(data), nil
		}
		pass += n
		if !more {
			break
		}
	}
	return pass, s.refusal
}

// Awaiting reports whether the last head asked for an upgrade. What follows it
// passes after Resume only.
func (s *Scanner) Awaiting() bool { return s.state == awaiting }

// Resume says that there was no upgrade: another request follows.
func (s *Scanner) Resume() {
	if s.state == awaiting {
		s.state = inHead
	}
}

// Upgrades is the number of heads so far that asked for an upgrade.
func (s *Scanner) Upgrades() int64 { return s.upgrades }

// BetweenRequests reports whether a refusal now has its place in front of an
// answer, and not in the middle of a body.
func (s *Scanner) BetweenRequests() bool { return s.state == inHead || s.state == awaiting }

// The feeders return how many bytes pass, and whether to go on.

func (s *Scanner) refuse(r *Refusal) (int, bool) {
	s.refusal = r
	return 0, false
}

// nextLine returns the next line of a section, without its end, or ok false if
// it is not complete or refused.
func (s *Scanner) nextLine(section []byte, limit int) (line []byte, ok bool) {
	i := bytes.IndexByte(section[s.seen:], '\n')
	if i < 0 {
		if s.seen = len(section); s.seen >= limit {
			s.refuse(s.tooLong(limit))
		}
		return nil, false
	}
	end := s.seen + i
	switch {
	case end >= limit:
		s.refuse(s.tooLong(limit))
		return nil, false
	case end == s.line || section[end-1] != '\r':
		s.refuse(bad("a line ends in LF without CR"))
		return nil, false
	}
	line = section[s.line : end-1]
	s.line, s.seen = end+1, end+1
	s.lines++
	return line, true
}

func (s *Scanner) tooLong(limit int) *Refusal {
	status, what := http.StatusRequestHeaderFieldsTooLarge, "a header"
	switch {
	case s.state == inChunkSize:
		status, what = http.StatusBadRequest, "the size and extension of a chunk"
	case s.state == inTrailers:
		what = "the trailers"
	case s.lines == 0:
		status, what = http.StatusRequestURITooLong, "a request line"
	}
	return &Refusal{status, fmt.Sprintf("%s of more than %d bytes", what, limit)}
}

// endSection returns the length of the section that is complete.
func (s *Scanner) endSection(next state) (int, bool) {
	n := s.line
	s.line, s.seen, s.lines, s.state = 0, 0, 0, next
	return n, true
}

func (s *Scanner) feedHead(data []byte) (int, bool) {
	if s.seen == 0 && len(data) > 0 && !isToken(data[0]) {
		return s.refuse(notHTTP(data[0]))
	}
	for {
		line, ok := s.nextLine(data, s.limits.HeaderBytes)
		switch {
		case !ok:
			return 0, false
		case s.lines == 1:
			s.head = head{}
			if string(line) == "PRI * HTTP/2.0" && s.limits.H2C && s.requests == 0 {
				s.state = raw
				return 0, true
			}
			s.refusal = s.head.requestLine(line, s)
		case len(line) > 0:
			if s.lines > s.limits.HeaderFields+1 {
				return s.refuse(&Refusal{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("more than %d header fields", s.limits.HeaderFields)})
			}
			s.refusal = s.head.field(line, s)
		default:
			if s.refusal = s.head.check(); s.refusal == nil {
				return s.endHead()
			}
		}
		if s.refusal != nil {
			return 0, false
		}
	}
}

func (s *Scanner) endHead() (int, bool) {
	s.requests++
	h := &s.head
	switch {
	case h.upgrade:
		s.upgrades++
		return s.endSection(awaiting)
	case h.chunked:
		s.excess = 0
		return s.endSection(inChunkSize)
	case h.length > 0:
		s.left = uint64(h.length)
		return s.endSection(inBody)
	}
	return s.endSection(inHead)
}

func (s *Scanner) feedBody(data []byte) (int, bool) {
	n := len(data)
	if uint64(n) >= s.left {
		n = int(s.left)
	}
	if s.left -= uint64(n); s.left > 0 {
		return n, false
	}
	if s.state = inHead; s.head.chunked {
		s.state = inChunkEnd
	}
	return n, true
}

func (s *Scanner) feedChunkSize(data []byte) (int, bool) {
	line, ok := s.nextLine(data, maxChunkLine)
	if !ok {
		return 0, false
	}
	size, r := chunkSize(line)
	if r != nil {
		return s.refuse(r)
	}
	s.excess += int64(len(line)) + 4
	s.excess = max(0, s.excess-16-2*int64(min(size, 1<<32)))
	switch {
	case s.excess > maxChunkExcess:
		return s.refuse(bad("more framing than data in a chunked body"))
	case size == 0:
		return s.endSection(inTrailers)
	}
	s.left = size
	return s.endSection(inChunk)
}

func (s *Scanner) feedChunkEnd(data []byte) (int, bool) {
	switch {
	case len(data) > 0 && data[0] != '\r', len(data) > 1 && data[1] != '\n':
		return s.refuse(bad("no CRLF after the data of a chunk"))
	case len(data) < 2:
		return 0, false
	}
	s.state = inChunkSize
	return 2, true
}

func (s *Scanner) feedTrailers(data []byte) (int, bool) {
	for {
		line, ok := s.nextLine(data, maxTrailerBytes)
		switch {
		case !ok:
			return 0, false
		case len(line) == 0:
			return s.endSection(inHead)
		}
		name, _, r := splitField(line)
		if r == nil && isFraming(name) {
			r = bad("a trailer that belongs into the header")
		}
		if r != nil {
			return s.refuse(r)
		}
	}
}

// chunkSize reads a size and checks the extension (RFC 9112, section 7.1.1).
// The blanks that it allows around a semicolon are refused: nobody sends them,
// and parsers disagree.
func chunkSize(line []byte) (uint64, *Refusal) {
	var n uint64
	digits := 0
	for ; digits < len(line) && line[digits] != ';'; digits++ {
		d := unhex(line[digits])
		if d > 15 || digits == 16 {
			return 0, bad("a chunk's size is no hexadecimal number of up to 16 digits")
		}
		n = n<<4 | uint64(d)
	}
	switch {
	case digits == 0:
		return 0, bad("a chunk without a size")
	case n > math.MaxInt64:
		return 0, bad("a chunk's size is out of range")
	case digits < len(line) && !isText(line[digits:]):
		return 0, bad("a control byte in a chunk's extension")
	}
	return n, nil
}
