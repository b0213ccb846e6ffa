package membership

import (
	"errors"
	"fmt"

	"github.com/fairlead/fairlead/core/swim"
	"github.com/fairlead/fairlead/core/swim/wire"
)

// ErrRecord is wrapped by every refusal of a node record.
var ErrRecord = errors.New("membership: bad node record")

// MaxVectorBytes is what a rumour carries of a node's changing state: the
// record less the hash in front.
const MaxVectorBytes = wire.MaxRecordBytes - len(wire.Hash{})

// MaxDefinitionBytes is the longest definition that members pull.
const MaxDefinitionBytes = wire.MaxDefinition

// joinRecord builds the payload of a state record: the definition's hash, then
// the vector. No definition is the zero hash.
func joinRecord(definition, vector []byte) (hash wire.Hash, payload []byte, err error) {
	if len(definition) > MaxDefinitionBytes {
		return hash, nil, fmt.Errorf("%w: the definition has %d bytes: want at most %d, run fewer instances on this node", ErrRecord, len(definition), MaxDefinitionBytes)
	}
	if len(vector) > MaxVectorBytes {
		return hash, nil, fmt.Errorf("%w: the state vector has %d bytes: want at most %d, one per instance", ErrRecord, len(vector), MaxVectorBytes)
	}
	if len(definition) > 0 {
		hash = wire.HashOf(definition)
	}
	payload = make([]byte, 0, len(hash)+len(vector))
	payload = append(payload, hash[:]...)
	return hash, append(payload, vector...), nil
}

// splitRecord undoes joinRecord. A record too short for a hash is another
// version's and is as good as none.
func splitRecord(r *swim.Record) (hash wire.Hash, vector []byte, ok bool) {
	if r == nil || len(r.Payload) < len(hash) {
		return hash, nil, false
	}
	copy(hash[:], r.Payload)
	return hash, r.Payload[len(hash):], true
}
