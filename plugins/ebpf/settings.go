package ebpf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/layout"
)

// settings are the provider's configuration.
type settings struct {
	Cgroup        string `json:"cgroup"`         // "": the root of the hierarchy
	BPFFS         string `json:"bpffs"`          // "": /sys/fs/bpf
	MaxFrontends  uint32 `json:"max_frontends"`  // 0: a million
	MaxSlots      uint32 `json:"max_slots"`      // 0: eight million
	CheckInterval string `json:"check_interval"` // "": 30s

	interval time.Duration
}

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "cgroup": {"type": "string", "description": "cgroup v2 directory whose processes are led to endpoints; the root of the hierarchy if empty"},
    "bpffs": {"type": "string", "description": "mounted BPF file system in which the work is pinned; /sys/fs/bpf if empty, mounted if it is not"},
    "max_frontends": {"type": "integer", "minimum": 0, "maximum": 16777216, "description": "addresses of each IP version at most; 0: 1048576"},
    "max_slots": {"type": "integer", "minimum": 0, "maximum": 67108864, "description": "places for endpoints of each IP version at most; 0: 8388608"},
    "check_interval": {"type": "string", "description": "how often the kernel is compared with what should be there, such as 30s"}
  }
}`

const (
	defaultInterval     = 30 * time.Second
	defaultMaxFrontends = 1 << 20
	defaultMaxSlots     = 1 << 23
)

func parseSettings(b []byte) (settings, error) {
	var s settings
	if len(b) > 0 {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return s, fmt.Errorf("%w: ebpf: configuration: %w", dataplane.ErrInvalid, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return s, fmt.Errorf("%w: ebpf: configuration: more than one value", dataplane.ErrInvalid)
		}
	}
	s.interval = defaultInterval
	if s.CheckInterval != "" {
		d, err := time.ParseDuration(s.CheckInterval)
		if err != nil || d < 10*time.Millisecond {
			return s, fmt.Errorf("%w: ebpf: check_interval %q: want a duration from 10ms on, such as 30s", dataplane.ErrInvalid, s.CheckInterval)
		}
		s.interval = d
	}
	for name, path := range map[string]string{"cgroup": s.Cgroup, "bpffs": s.BPFFS} {
		if path != "" && !filepath.IsAbs(path) {
			return s, fmt.Errorf("%w: ebpf: %s %q: want an absolute path", dataplane.ErrInvalid, name, path)
		}
	}
	if s.MaxFrontends == 0 {
		s.MaxFrontends = defaultMaxFrontends
	}
	if s.MaxSlots == 0 {
		s.MaxSlots = defaultMaxSlots
	}
	return s, nil
}

// first is how large the maps are at first: some 500 KiB.
func (s settings) first() layout.Size {
	return s.clip(layout.Size{Frontends: [layout.Families]uint32{1024, 256}, Services: 1024, Slots: [layout.Families]uint32{4096, 1024}})
}

// firstFor is how large the maps are at first where it is known what has to go into
// them, beside the provider's own service: so they need not be made twice.
func (s settings) firstFor(next *dataplane.Snapshot) layout.Size {
	var need needs
	for svc := range next.Services() {
		need.add(svc)
	}
	own := layout.Load{Services: 1, Frontends: 1, Slots: [layout.Families]uint64{layout.V4: 1}}
	return s.clip(need.beside(own, s.first()))
}

// clip bounds a size by what is allowed.
func (s settings) clip(size layout.Size) layout.Size {
	for f := range layout.Families {
		size.Frontends[f] = min(size.Frontends[f], s.MaxFrontends)
		size.Slots[f] = min(size.Slots[f], s.MaxSlots)
	}
	size.Services = min(size.Services, 2*s.MaxFrontends)
	return size
}
