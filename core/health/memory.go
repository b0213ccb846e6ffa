package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/durable"
)

// KeepFor bounds how long after its last writing the file is believed. A first
// probe comes within a second of the start in any case.
const KeepFor = 5 * time.Minute

// memoryBytes bounds the file; 30,000 checks take some 4 MB.
const memoryBytes = 64 << 20

const memoryVersion = 1

// memory is which checks passed, as the file holds it.
type memory struct {
	Version int                 `json:"version"`
	BootID  string              `json:"boot_id"` // nothing that ran before a boot is running
	Saved   time.Time           `json:"saved"`
	Passing map[string][]string `json:"passing"` // by InstanceKey.String, identities of checks
}

// take reports whether the check was passing, and forgets it: one that is set
// again later begins critical as any other.
func (m memory) take(key InstanceKey, id string, now time.Time) bool {
	if !m.recent(now) {
		return false
	}
	ids := m.Passing[key.String()]
	i := slices.Index(ids, id)
	if i < 0 {
		return false
	}
	m.Passing[key.String()] = slices.Delete(ids, i, i+1)
	return true
}

// recent bounds the age. A clock that was set back makes it unknown.
func (m memory) recent(now time.Time) bool {
	age := now.Sub(m.Saved)
	return age >= 0 && age <= KeepFor
}

// remember returns what the file has to hold.
func (t *table) remember(bootID string, now time.Time) memory {
	m := memory{Version: memoryVersion, BootID: bootID, Saved: now, Passing: map[string][]string{}}
	for key, in := range t.instances {
		for _, e := range in.entries {
			if e.verdict.passing {
				m.Passing[key.String()] = append(m.Passing[key.String()], e.id)
			}
		}
	}
	return m
}

// loadMemory reads the file. One of an earlier boot, or none, is no memory and
// no error; with an error there is no memory either.
func loadMemory(path, bootID string) (memory, error) {
	text, err := durable.Read(path, memoryBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return memory{}, nil
	}
	if err != nil {
		return memory{}, fmt.Errorf("health: the file of passing checks cannot be read: %w", err)
	}
	var m memory
	if err := json.Unmarshal(text, &m); err != nil {
		return memory{}, fmt.Errorf("health: the file of passing checks is damaged: %s: %w", path, err)
	}
	if m.Version != memoryVersion {
		return memory{}, fmt.Errorf("health: the file of passing checks has version %d, this agent reads %d: %s", m.Version, memoryVersion, path)
	}
	if bootID == "" || m.BootID != bootID {
		return memory{}, nil
	}
	return m, nil
}

func (m memory) save(path string) error {
	text, err := json.Marshal(m)
	if err == nil {
		err = durable.Replace(path, append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("health: the file of passing checks cannot be written: %w", err)
	}
	return nil
}

// readBootID is "" where it cannot be told; then nothing is kept.
func readBootID() string {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
