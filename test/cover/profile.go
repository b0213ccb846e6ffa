package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Block is one line of a coverage profile: statements that run together.
type Block struct {
	File       string // import path of the package, slash, file name
	Span       string // "4.20,6.2"; opaque
	Statements int
}

// ParseProfile reads what go test -coverprofile wrote: for each block whether it
// ran. A block that several test binaries report ran if it did in one of them.
func ParseProfile(r io.Reader) (map[Block]bool, error) {
	lines := bufio.NewScanner(r)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "mode: ") {
		return nil, errors.New("cover: no coverage profile: it does not begin with a line `mode: …`")
	}
	blocks := map[Block]bool{}
	for n := 2; lines.Scan(); n++ {
		// file.go:4.20,6.2 3 1
		where, rest, _ := strings.Cut(lines.Text(), " ")
		statements, count, _ := strings.Cut(rest, " ")
		colon := strings.LastIndexByte(where, ':')
		s, err := strconv.Atoi(statements)
		c, err2 := strconv.ParseUint(count, 10, 64)
		if colon < 0 || err != nil || err2 != nil {
			return nil, fmt.Errorf("cover: line %d is no block of a coverage profile: %q", n, lines.Text())
		}
		b := Block{File: where[:colon], Span: where[colon+1:], Statements: s}
		blocks[b] = blocks[b] || c > 0
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cover: %w", err)
	}
	return blocks, nil
}
