package membership

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// ErrRecord is wrapped by every refusal of a node record.
var ErrRecord = errors.New("membership: bad node record")

// RumourVectorBytes is the longest state vector that a rumour carries: the
// record less the hash and the kind in front. A longer one is pulled.
const RumourVectorBytes = wire.MaxRecordBytes - len(wire.Hash{}) - 1

// MaxVectorBytes is the longest state vector of a record.
const MaxVectorBytes = 16 << 10

// MaxDefinitionBytes is the longest definition that members pull.
const MaxDefinitionBytes = wire.MaxDefinition

// The kinds of what follows the definition's hash in a record; nothing follows
// it if there is no vector. Append only.
const (
	kindVector     = 0 // the vector
	kindVectorHash = 1 // the hash of the vector, by which it is pulled as definitions are
)

// parts is what a record's payload says.
type parts struct {
	definition wire.Hash // zero: none
	vector     []byte    // nil if there is none, or if it is pulled
	pulled     wire.Hash // of the vector; zero if it is not pulled
}

// refers reports whether h is one of the hashes that the record has.
func (p *parts) refers(h wire.Hash) bool {
	return h != (wire.Hash{}) && (h == p.definition || h == p.pulled)
}

// joinRecord builds the payload of a state record.
func joinRecord(definition, vector []byte) (p parts, payload []byte, err error) {
	if len(definition) > MaxDefinitionBytes {
		return p, nil, fmt.Errorf("%w: the definition has %d bytes: want at most %d, run fewer instances on this node", ErrRecord, len(definition), MaxDefinitionBytes)
	}
	if len(vector) > MaxVectorBytes {
		return p, nil, fmt.Errorf("%w: the state vector has %d bytes: want at most %d, run fewer instances on this node", ErrRecord, len(vector), MaxVectorBytes)
	}
	if len(definition) > 0 {
		p.definition = wire.HashOf(definition)
	}
	payload = append(payload, p.definition[:]...)
	switch {
	case len(vector) > RumourVectorBytes:
		p.pulled = wire.HashOf(vector)
		payload = append(append(payload, kindVectorHash), p.pulled[:]...)
	case len(vector) > 0:
		p.vector = vector
		payload = append(append(payload, kindVector), vector...)
	}
	return p, payload, nil
}

// splitRecord undoes joinRecord. A record too short for a hash is another
// version's and is as good as none; a vector of an unknown kind is none.
func splitRecord(r *swim.Record) (p parts, ok bool) {
	if r == nil || len(r.Payload) < len(p.definition) {
		return p, false
	}
	rest := r.Payload[copy(p.definition[:], r.Payload):]
	if len(rest) == 0 {
		return p, true
	}
	switch kind, rest := rest[0], rest[1:]; {
	case kind == kindVector:
		p.vector = rest
	case kind == kindVectorHash && len(rest) == len(p.pulled):
		copy(p.pulled[:], rest)
	}
	return p, true
}
