package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds the file; the parser's memory is some 50 times its input.
const maxFileBytes = 4 << 20

// loadFile reads the file layer.
func (l *loader) loadFile(o Options) {
	origin := Origin{Layer: LayerFile, Name: o.File}
	text, err := o.ReadFile(o.File)
	if err != nil {
		l.fail(&Error{Origin: origin, Message: "cannot read the configuration file; give a readable file with --config", Err: err})
		return
	}
	root, bad := parseYAML(text, origin)
	if bad != nil {
		l.fail(bad)
		return
	}
	if root == nil { // empty, or comments only: nothing is written
		return
	}
	d := decoder{loader: l, origin: origin}
	d.section(root, d.root(), "")
}

// parseYAML returns the root of the only document in text, nil if there is none.
func parseYAML(text []byte, origin Origin) (*yaml.Node, *Error) {
	if len(text) > maxFileBytes {
		return nil, &Error{Origin: origin, Message: fmt.Sprintf("has %d bytes, more than the %d allowed; this is hardly a configuration", len(text), maxFileBytes)}
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	if err := dec.Decode(&doc); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntaxError(err, text, origin)
	}
	var next yaml.Node
	if err := dec.Decode(&next); err == nil {
		origin.Line = next.Line
		return nil, &Error{Origin: origin, Message: "a second document starts here; a configuration is one document, remove the --- line"}
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(err, text, origin)
	}
	return doc.Content[0], nil
}

// syntaxError gives the parser's error the form of our own and explains the
// commonest cause, a tab, which YAML forbids in indentation.
func syntaxError(err error, text []byte, origin Origin) *Error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(message, "line "); ok {
		if number, what, ok := strings.Cut(rest, ": "); ok {
			if line, err := strconv.Atoi(number); err == nil && origin.Layer == LayerFile {
				origin.Line, message = line, what
			}
		}
	}
	if line := tabIndented(text); line != 0 {
		if origin.Layer == LayerFile {
			origin.Line = line
		}
		message = "this line is indented with a tab; YAML wants spaces"
	}
	return &Error{Origin: origin, Message: "not valid YAML: " + message}
}

// tabIndented returns the first line (from 1) with a tab in its indentation, or 0.
func tabIndented(text []byte) int {
	number := 0
	for line := range bytes.Lines(text) {
		number++
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		if bytes.IndexByte(indent, '\t') >= 0 && len(bytes.TrimSpace(line)) != 0 {
			return number
		}
	}
	return 0
}
