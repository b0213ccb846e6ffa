package config

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// YAML is the whole configuration as a file: Load reads the same Config from
// it. Secrets are not masked; see Masked.
func (c *Config) YAML() ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(nodeOf(reflect.ValueOf(*c))); err != nil {
		return nil, fmt.Errorf("config: encode YAML: %w", err)
	}
	if err := enc.Close(); err != nil {
		return nil, fmt.Errorf("config: encode YAML: %w", err)
	}
	return out.Bytes(), nil
}

// JSON is the whole configuration as one indented JSON object with the keys of
// the file in their order. Load reads the same Config from it, JSON being YAML.
func (c *Config) JSON() []byte {
	var out bytes.Buffer
	// The text is our own and well formed, so Indent cannot fail.
	_ = json.Indent(&out, compactJSON(nodeOf(reflect.ValueOf(*c))), "", "  ")
	return append(out.Bytes(), '\n')
}

// nodeOf turns a configuration value into YAML nodes, sections and entries in
// the order of their fields.
func nodeOf(v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case time.Duration:
		return textNode(formatDuration(x))
	case encoding.TextMarshaler:
		return textNode(textOf(v))
	}
	switch v.Kind() {
	case reflect.Struct:
		return structNode(v)
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		values := map[string]reflect.Value{}
		for it := v.MapRange(); it.Next(); {
			values[it.Key().String()] = it.Value()
		}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			n.Content = append(n.Content, textNode(name), nodeOf(values[name]))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for i := range v.Len() {
			n.Content = append(n.Content, nodeOf(v.Index(i)))
		}
		return n
	case reflect.Interface:
		return nodeOf(v.Elem())
	case reflect.String:
		return textNode(v.String())
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(v.Bool())}
	case reflect.Float64:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: formatFloat(v.Float())}
	default:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(v.Interface())}
	}
}

func structNode(v reflect.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if tag.Get("omit") == "true" && v.Field(i).IsZero() {
			continue
		}
		name := tag.Get("key")
		if name == "" {
			name = strings.TrimSuffix(tag.Get("section"), ".")
		}
		n.Content = append(n.Content, textNode(name), nodeOf(v.Field(i)))
	}
	return n
}

// textNode is a string for sure: the encoder quotes what would read otherwise. It
// would write several lines as a block, in which a first tab is no text to a reader.
func textNode(s string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s}
	if strings.Contains(s, "\n") && strings.HasPrefix(strings.TrimLeft(s, " \n"), "\t") {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

// formatFloat keeps a float a float for the next reader: 3.0, not 3.
func formatFloat(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	if mantissa, exponent, ok := strings.Cut(s, "e"); ok && !strings.Contains(mantissa, ".") {
		s = mantissa + ".0e" + exponent
	}
	return s
}

// compactJSON writes nodes as JSON, keeping the order of keys.
func compactJSON(n *yaml.Node) []byte {
	var out bytes.Buffer
	writeJSON(&out, n)
	return out.Bytes()
}

func writeJSON(out *bytes.Buffer, n *yaml.Node) {
	switch {
	case n.Kind == yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			writeJSONString(out, n.Content[i].Value)
			out.WriteByte(':')
			writeJSON(out, n.Content[i+1])
		}
		out.WriteByte('}')
	case n.Kind == yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range n.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			writeJSON(out, item)
		}
		out.WriteByte(']')
	case n.Tag == "!!str":
		writeJSONString(out, n.Value)
	default:
		out.WriteString(n.Value)
	}
}

// writeJSONString writes a string that JSON and YAML read alike: what YAML does
// not allow raw is escaped, and above U+FFFF, where their escapes differ,
// everything is raw.
func writeJSONString(out *bytes.Buffer, s string) {
	out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			out.WriteByte('\\')
			out.WriteRune(r)
		case r <= 0xffff && !unicode.IsPrint(r):
			fmt.Fprintf(out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	out.WriteByte('"')
}
