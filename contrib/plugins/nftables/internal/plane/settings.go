package plane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/fairlead/fairlead/dataplane"
)

// settings are the provider's configuration.
type settings struct {
	Mode          string `json:"mode"`           // "": all
	CheckInterval string `json:"check_interval"` // "": 1s

	interval time.Duration
}

// forwardedMode leaves the connections of this host to another data plane.
const forwardedMode = "forwarded"

const schema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "mode": {"enum": ["all", "forwarded"], "description": "whose connections: of this host and those that it forwards, or the latter only, beside another data plane"},
    "check_interval": {"type": "string", "description": "how often the kernel is asked whether somebody changed its rules, such as 1s"}
  }
}`

const defaultInterval = time.Second

func parseSettings(b []byte) (settings, error) {
	var s settings
	if len(b) > 0 {
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&s); err != nil {
			return s, fmt.Errorf("%w: nftables: configuration: %w", dataplane.ErrInvalid, err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return s, fmt.Errorf("%w: nftables: configuration: more than one value", dataplane.ErrInvalid)
		}
	}
	switch s.Mode {
	case "", "all", forwardedMode:
	default:
		return s, fmt.Errorf("%w: nftables: mode %q: want all or %s", dataplane.ErrInvalid, s.Mode, forwardedMode)
	}
	s.interval = defaultInterval
	if s.CheckInterval != "" {
		d, err := time.ParseDuration(s.CheckInterval)
		if err != nil || d < 10*time.Millisecond {
			return s, fmt.Errorf("%w: nftables: check_interval %q: want a duration from 10ms on, such as 1s", dataplane.ErrInvalid, s.CheckInterval)
		}
		s.interval = d
	}
	return s, nil
}
