package conf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

// maxFileBytes bounds the file; the parser's memory is some 50 times its input.
const maxFileBytes = 8 << 20

// file reads l7.yaml.
func (l *loader) file(name string) {
	text, err := l.in.ReadFile(name)
	if err != nil {
		l.errs = append(l.errs, fmt.Errorf("l7: the configuration cannot be read: %w: give a readable file with --config", err))
		return
	}
	doc := document{name: filepath.Base(name), l: l}
	root := doc.parse(text)
	if root == nil {
		return
	}
	doc.mapping(root, "", names(), func(key string, value *yaml.Node) {
		if key == keyServices {
			l.origins[key] = doc.at(value)
			doc.services(value)
			return
		}
		v, ok := scalarOrList(value)
		if !ok {
			l.failf(doc.at(value), "%s: want a single value or a list", key)
			return
		}
		l.set(key, v, doc.at(value))
	})
}

// document is a text of YAML: the file, or the value of a variable.
type document struct {
	name string
	text bool // of a variable: lines say nothing
	l    *loader
}

// at is the place of a node.
func (d document) at(n *yaml.Node) string {
	if d.text {
		return d.name
	}
	return fmt.Sprintf("%s:%d", d.name, n.Line)
}

func (d document) parse(text []byte) *yaml.Node {
	if len(text) > maxFileBytes {
		d.l.failf(d.name, "has %d bytes, %d at most", len(text), maxFileBytes)
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	switch err := decoder.Decode(&root); {
	case errors.Is(err, io.EOF):
		return nil // empty, or comments
	case err != nil:
		d.l.failf(d.name, "no valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	}
	var second yaml.Node
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		d.l.failf(d.name, "a second document follows: remove the line with ---")
		return nil
	}
	return root.Content[0]
}

// mapping calls visit for each key of a mapping, and refuses those that are not
// known or come twice.
func (d document) mapping(n *yaml.Node, path string, known []string, visit func(key string, value *yaml.Node)) {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.l.failf(d.at(n), "%swant KEY: VALUE lines, with the keys %s", after(path), strings.Join(known, ", "))
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		first, twice := seen[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || !slices.Contains(known, key.Value):
			d.l.failf(d.at(key), "%skey %q is not known%s", after(path), key.Value, settings.DidYouMean(key.Value, known))
		case twice:
			d.l.failf(d.at(key), "%s%s is written twice, first in line %d: keep one", after(path), key.Value, first)
		case value.Kind == yaml.AliasNode:
			d.l.failf(d.at(value), "%s%s is an alias: write the value out", after(path), key.Value)
		default:
			seen[key.Value] = key.Line
			visit(key.Value, value)
		}
	}
}

func after(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

// scalarOrList returns what settings.Key.Set takes.
func scalarOrList(n *yaml.Node) (any, bool) {
	switch n.Kind {
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			v, ok := scalar(item)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	default:
		return scalar(n)
	}
}

// scalar keeps the type that YAML sees, so that "7" in quotes is no number.
func scalar(n *yaml.Node) (any, bool) {
	if n.Kind != yaml.ScalarNode {
		return nil, false
	}
	switch n.Tag {
	case "!!str":
		return n.Value, true
	case "!!bool":
		switch strings.ToLower(n.Value) {
		case "true":
			return true, true
		case "false":
			return false, true
		}
		return n.Value, true
	case "!!int", "!!float":
		return json.Number(n.Value), true
	}
	return nil, false
}
