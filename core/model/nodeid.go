package model

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// ErrNodeID is wrapped by every refusal of a node id.
var ErrNodeID = errors.New("model: bad node id")

// NodeID identifies a node for the life of its data directory. It is minted
// at random and independent of name and address, so that both may change.
// 64 random bits keep a table of ids small; two nodes that share one are
// treated, and reported, as clones of one data directory.
//
// Invariant: 0 is no node's id.
type NodeID uint64

// MintNodeID draws a new id from random (crypto/rand.Reader outside tests).
func MintNodeID(random io.Reader) (NodeID, error) {
	var b [8]byte
	for {
		if _, err := io.ReadFull(random, b[:]); err != nil {
			return 0, fmt.Errorf("model: mint a node id: %w", err)
		}
		if id := NodeID(binary.BigEndian.Uint64(b[:])); id != 0 {
			return id, nil
		}
	}
}

// ParseNodeID reads the form that String prints.
func ParseNodeID(s string) (NodeID, error) {
	if len(s) != 16 {
		return 0, fmt.Errorf("%w %q: want 16 hexadecimal digits", ErrNodeID, s)
	}
	v, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, fmt.Errorf("%w %q: want 16 hexadecimal digits", ErrNodeID, s)
	}
	if v == 0 {
		return 0, fmt.Errorf("%w %q: zero is no node", ErrNodeID, s)
	}
	return NodeID(v), nil
}

// String prints 16 lower-case hexadecimal digits.
func (id NodeID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText implements encoding.TextMarshaler.
func (id NodeID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *NodeID) UnmarshalText(text []byte) error {
	v, err := ParseNodeID(string(text))
	if err != nil {
		return err
	}
	*id = v
	return nil
}
