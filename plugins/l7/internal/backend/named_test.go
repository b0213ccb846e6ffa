package backend

import (
	"io"
	"slices"
	"testing"
)

// What Connection names is known beside close too, and a body names nothing.
func TestConnectionFields(t *testing.T) {
	const body = "\r\nConnection: of-the-body\r\n\r\n"
	for head, want := range map[string][]string{
		"HTTP/1.1 200 OK\r\nConnection: close, x\r\n\r\n":                                {"close, x"},
		"HTTP/1.1 200 OK\r\nX-Connection: a\r\nconnection:close\r\nConnection: \r\n\r\n": {"close", ""},
		"HTTP/1.1 200 OK\nConnection: close, x\n\n":                                      {"close, x"},
		"HTTP/1.1 200 OK\nConnection: close, x\n\r\n":                                    {"close, x"},
		"HTTP/1.1 200 OK\r\nConnection: close, x\r\n\n":                                  {"close, x"},
		"HTTP/1.1 200 OK\r\nContent-Length: 26\r\n\r\n":                                  nil,
	} {
		srv := newPeer(t)
		c := get(t, NewPool(srv.addr, options(Options{})), true)
		other := <-srv.conns
		_, _ = io.WriteString(other, head+body)
		_ = other.Close()
		if got := c.connectionFields(); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
		c.Discard()
	}
}
