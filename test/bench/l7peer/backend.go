package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
)

// backend answers with as little work as it can, so that a machine with two CPUs
// has some left for the proxy. It knows no more of HTTP than proxies use
// towards it: Content-Length, and connections that stay.
type backend struct {
	requests     atomic.Int64 // but those for /count
	small, large []byte
}

// serveBackend answers GET /large with 1 MiB, GET /count with the number of
// requests so far, and all else, once its body was read, with 1 KB.
func serveBackend(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	b := &backend{small: answer(make([]byte, 1<<10)), large: answer(make([]byte, 1<<20))}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go b.serve(c)
	}
}

func answer(body []byte) []byte {
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n\r\n", len(body))
	return append([]byte(head), body...)
}

func (b *backend) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 16<<10)
	for {
		target, length, err := readHead(r)
		if err != nil {
			return // proxies close what they do not need
		}
		if _, err := r.Discard(length); err != nil {
			return
		}
		out := b.small
		switch target {
		case "/count":
			out = answer(strconv.AppendInt(nil, b.requests.Load(), 10))
		case "/large":
			out = b.large
			b.requests.Add(1)
		default:
			b.requests.Add(1)
		}
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}

var (
	contentLength    = []byte("content-length:")
	transferEncoding = []byte("transfer-encoding:")
)

// readHead returns what of a request's head matters.
func readHead(r *bufio.Reader) (target string, length int, err error) {
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		switch line = bytes.TrimRight(line, "\r\n"); {
		case first:
			words := bytes.Fields(line)
			if len(words) != 3 {
				return "", 0, fmt.Errorf("request line %q", line)
			}
			target = "/"
			if len(words[1]) > 1 { // no allocation for most requests
				target = string(words[1])
			}
		case len(line) == 0:
			return target, length, nil
		case hasPrefixFold(line, contentLength):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(line[len(contentLength):]))); err != nil {
				return "", 0, err
			}
		case hasPrefixFold(line, transferEncoding):
			return "", 0, io.ErrUnexpectedEOF // nobody sends one here
		}
	}
}

func hasPrefixFold(line, prefix []byte) bool {
	return len(line) >= len(prefix) && bytes.EqualFold(line[:len(prefix)], prefix)
}
