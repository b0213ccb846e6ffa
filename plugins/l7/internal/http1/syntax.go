package http1

import (
	"bytes"
	"encoding/binary"
)

// Classes of bytes (RFC 9110, section 5.6.2), a bit for each below 64 and from
// 64 on.
const (
	tokenLow  = 1<<'!' | 1<<'#' | 1<<'$' | 1<<'%' | 1<<'&' | 1<<'\'' | 1<<'*' | 1<<'+' | 1<<'-' | 1<<'.' | 0x3ff<<'0'
	tokenHigh = (1<<26-1)<<('A'-64) | (1<<26-1)<<('a'-64) | 1<<('^'-64) | 1<<('_'-64) | 1<<('`'-64) | 1<<('|'-64) | 1<<('~'-64)
)

func isToken(c byte) bool {
	if c < 64 {
		return uint64(tokenLow)>>c&1 != 0
	}
	return c < 128 && uint64(tokenHigh)>>(c-64)&1 != 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func unhex(c byte) byte {
	switch {
	case isDigit(c):
		return c - '0'
	case 'a' <= c|0x20 && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 255
}

// isText reports whether there is no control byte but tabs in b.
func isText(b []byte) bool {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		x := binary.LittleEndian.Uint64(b)
		low := (x - 0x20*ones) &^ x & highs // a byte is below 0x20, or the one before it is
		del := x ^ 0x7f*ones
		if low|(del-ones)&^del&highs != 0 && !isTextByByte(b[:8]) {
			return false
		}
		b = b[8:]
	}
	return isTextByByte(b)
}

func isTextByByte(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// is compares with a name in small letters.
func is(b []byte, name string) bool {
	if len(b) != len(name) {
		return false
	}
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != name[i] {
			return false
		}
	}
	return true
}

// isFraming reports whether a field means something in a header only.
func isFraming(name []byte) bool {
	return is(name, "content-length") || is(name, "transfer-encoding") || is(name, "host") || is(name, "trailer")
}

// splitField reads a field line (RFC 9112, section 5).
func splitField(line []byte) (name, value []byte, r *Refusal) {
	colon := bytes.IndexByte(line, ':')
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return nil, nil, bad("a folded header field")
	case colon < 0:
		return nil, nil, bad("a header field without a colon")
	case colon == 0:
		return nil, nil, bad("a header field without a name")
	}
	name = line[:colon]
	for _, c := range name {
		if !isToken(c) {
			if c == ' ' || c == '\t' {
				return nil, nil, bad("a blank in or after the name of a header field")
			}
			return nil, nil, bad("the name of a header field is no token")
		}
	}
	value = line[colon+1:]
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	for len(value) > 0 && (value[len(value)-1] == ' ' || value[len(value)-1] == '\t') {
		value = value[:len(value)-1]
	}
	if !isText(value) {
		return nil, nil, bad("a control byte in a header field")
	}
	return name, value, nil
}

// notHTTP names what a connection begins with that is no method.
func notHTTP(c byte) *Refusal {
	switch c {
	case '\r', '\n':
		return bad("an empty line before the request line")
	case 0x16:
		return bad("TLS on a port without TLS")
	}
	return bad("the method is no token")
}
