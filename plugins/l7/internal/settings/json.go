package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Parse reads JSON over the defaults, and checks the whole. Nothing, and {}, are
// the defaults.
func Parse(text []byte) (Settings, error) {
	s := Default()
	values := map[string]any{}
	if len(bytes.TrimSpace(text)) > 0 {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&values); err != nil {
			return s, fmt.Errorf("want an object of settings: %w", err)
		}
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			return s, errors.New("want one object of settings, and there is something behind it")
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		k, ok := Find(name)
		if !ok {
			errs = append(errs, &Problem{name, "is not known" + DidYouMean(name, Names())})
			continue
		}
		if err := k.Set(&s, values[name]); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, s.Check())
	}
	return s, errors.Join(errs...)
}

// Schema is the JSON Schema of what Parse takes.
func Schema() []byte {
	properties := map[string]any{}
	for _, k := range Keys() {
		properties[k.Name] = k.schema()
	}
	b, err := json.MarshalIndent(map[string]any{"type": "object", "additionalProperties": false, "properties": properties}, "", "  ")
	if err != nil { // maps and texts always can be encoded
		return nil
	}
	return b
}

func (k Key) schema() map[string]any {
	p := map[string]any{"description": k.Doc + " (default " + orNone(k.Show(Default())) + ")"}
	switch k.kind {
	case kindText:
		p["type"] = "string"
	case kindList:
		p["type"], p["items"] = []string{"string", "array"}, map[string]any{"type": "string"}
	case kindBool:
		p["type"] = "boolean"
	case kindInt:
		p["type"], p["minimum"], p["maximum"] = "integer", k.min, k.max
	case kindDuration:
		p["type"] = "string"
		p["description"] = fmt.Sprintf("%s; %v to %v (default %v)", k.Doc, time.Duration(k.min), time.Duration(k.max), k.Show(Default()))
	}
	return p
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
