package pluginhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// Keys of a plugin's section that are for the host; the plugin does not see
// them.
const (
	keyOnHostLoss   = "on_host_loss"
	keySocket       = "socket"
	keyStartTimeout = "start_timeout"
)

// Settings are a plugin's section of the configuration.
type Settings struct {
	// Values are string, bool, int, float64, []any and map[string]any.
	Values map[string]any
	// Origin says where a key was written, such as "fairlead.yaml:12"; nil if
	// nobody knows.
	Origin func(key string) string
	// Text says of a key that its value is text for want of a type: that of a
	// variable. Such a value is read as the schema's type. Nil: none is.
	Text func(key string) bool
}

// hosting is the part of the settings that is for the host.
type hosting struct {
	outlives bool
	socket   string // of a provider that runs by itself; empty: none
	timeout  time.Duration
}

// split takes the host's keys out of the settings of a plugin.
func (s Settings) split(name string, timeout time.Duration) (hosting, map[string]any, error) {
	h := hosting{timeout: timeout}
	rest := map[string]any{}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(s.Values)) {
		text, isText := s.Values[key].(string)
		var problem string
		switch key {
		case keyOnHostLoss:
			h.outlives = text == handshake.HostLossServe
			if text != handshake.HostLossServe && text != handshake.HostLossExit {
				problem = fmt.Sprintf("want %s or %s", handshake.HostLossExit, handshake.HostLossServe)
			}
		case keySocket:
			h.socket = text
			if path, ok := strings.CutPrefix(text, "unix:"); ok {
				h.socket = path
			}
			if !isText || !strings.HasPrefix(h.socket, "/") {
				problem = "want the absolute path of a unix socket"
			} else if err := checkSocket(h.socket); err != nil {
				problem = err.Error()
			}
		case keyStartTimeout:
			d, err := time.ParseDuration(text)
			h.timeout = d
			if err != nil || d <= 0 || d > time.Hour {
				problem = "want a duration such as 30s, at most 1h"
			}
		default:
			rest[key] = s.Values[key]
		}
		if problem != "" {
			errs = append(errs, s.problem(name, key, fmt.Sprintf("is %v: %s", s.Values[key], problem)))
		}
	}
	return h, rest, errors.Join(errs...)
}

// problem is an error about one key: it names the key and where it was written.
func (s Settings) problem(name, key, message string) error {
	at := ""
	top, _, _ := strings.Cut(key, ".")
	if s.Origin != nil {
		if o := s.Origin(top); o != "" {
			at = o + ": "
		}
	}
	return fmt.Errorf("pluginhost: %splugins.%s.%s %s", at, name, key, message)
}

// encode returns the settings as JSON, checked against the schema of the plugin.
func (s Settings) encode(name string, values map[string]any, schema []byte) ([]byte, error) {
	if len(schema) == 0 {
		if len(values) > 0 {
			key := slices.Sorted(maps.Keys(values))[0]
			return nil, s.problem(name, key, "is of no use: the plugin takes no settings; remove it")
		}
		return []byte("{}"), nil
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("pluginhost: schema of plugin %s: %w", name, err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.UseLoader(nothing{})
	const at = "urn:plugin"
	if err := compiler.AddResource(at, document); err != nil {
		return nil, fmt.Errorf("pluginhost: schema of plugin %s: %w", name, err)
	}
	compiled, err := compiler.Compile(at)
	if err != nil {
		return nil, fmt.Errorf("pluginhost: schema of plugin %s: %w", name, err)
	}
	typed := map[string]any{}
	for key, v := range values {
		if text, ok := v.(string); ok && s.Text != nil && s.Text(key) {
			v = readAs(text, compiled.Properties[key])
		}
		typed[key] = v
	}
	text, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("pluginhost: plugins.%s: %w", name, err)
	}
	// Once through JSON, so that numbers are what the plugin will see.
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("pluginhost: plugins.%s: %w", name, err)
	}
	if err := compiled.Validate(value); err != nil {
		return nil, s.findings(name, err)
	}
	return text, nil
}

// nothing loads no schema: a plugin's stands alone.
type nothing struct{}

// Load refuses.
func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s: a schema has to stand alone", url)
}

// readAs reads text as one of the types that a schema wants; text that is none
// stays text, and the schema says what is wrong with it.
func readAs(text string, want *jsonschema.Schema) any {
	for want != nil && want.Types == nil && want.Ref != nil {
		want = want.Ref
	}
	if want == nil || want.Types == nil {
		return text
	}
	types := want.Types.ToStrings()
	if slices.Contains(types, "string") {
		return text
	}
	var v any
	switch {
	case slices.Contains(types, "boolean"):
		if b, err := strconv.ParseBool(text); err == nil {
			return b
		}
	case slices.Contains(types, "array") && !strings.HasPrefix(strings.TrimSpace(text), "["):
		var list []any
		for _, item := range strings.Split(text, ",") {
			list = append(list, strings.TrimSpace(item))
		}
		return list
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) == nil && !d.More() {
		return v
	}
	return text
}
