package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/core/durable"
)

// registeredFile keeps, in the data directory, when each service was first
// defined here. The oldest of disagreeing definitions counts, so a restart
// must not make one look new.
const registeredFile = "registered.json"

// stateBytes bounds the files of this package's state.
const stateBytes = 8 << 20

// births is when each service, by its key, was first defined here, in unix ms.
type births struct {
	path string // empty: not kept
	at   map[string]int64
}

// readBirths returns what the data directory holds; none if dir is empty.
func readBirths(dir string) (*births, error) {
	b := &births{at: make(map[string]int64)}
	if dir == "" {
		return b, nil
	}
	b.path = filepath.Join(dir, registeredFile)
	data, err := durable.Read(b.path, stateBytes)
	if err == nil {
		err = json.Unmarshal(data, &b.at)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("agent: %s cannot be used: %w: make it readable, or delete it and let services count as defined anew", b.path, err)
	}
	return b, nil
}

// of returns the times of these services, now for new ones. Nothing is
// remembered yet.
func (b *births) of(all []placed, now int64) map[string]int64 {
	next := make(map[string]int64, len(all))
	for _, p := range all {
		key := p.key.String()
		next[key] = now
		if at, known := b.at[key]; known {
			next[key] = at
		}
	}
	return next
}

// keep remembers these times and forgets all others. On an error those of
// before are remembered still.
func (b *births) keep(next map[string]int64) error {
	if maps.Equal(next, b.at) {
		return nil
	}
	if b.path != "" {
		data, err := json.MarshalIndent(next, "", " ")
		if err == nil {
			err = durable.Replace(b.path, append(data, '\n'))
		}
		if err != nil {
			return fmt.Errorf("agent: %s cannot be written: %w: make the data directory writable and free some space", b.path, err)
		}
	}
	b.at = next
	return nil
}
