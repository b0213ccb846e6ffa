package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Layer is one of the places a value may come from, weakest first.
type Layer uint8

// The layers.
const (
	LayerDefault Layer = iota // nothing is written
	LayerFile                 // the YAML file
	LayerEnv                  // a FAIRLEAD_* variable
	LayerFlag                 // a command-line flag
)

// Origin says where a value was written. The zero value is the default.
type Origin struct {
	Layer Layer
	// Name is the file's path, the variable's name or the flag's name without dashes.
	Name string
	// Line and Column (from 1) are the position in a file, 0 elsewhere.
	Line, Column int
}

// compare orders by layer, and within a file by place. What is not written comes last,
// as it is nowhere to be looked at.
func (o Origin) compare(other Origin) int {
	rank := func(o Origin) int {
		return slices.Index([]Layer{LayerFile, LayerEnv, LayerFlag, LayerDefault}, o.Layer)
	}
	return cmp.Or(cmp.Compare(rank(o), rank(other)), cmp.Compare(o.Line, other.Line), cmp.Compare(o.Column, other.Column))
}

// String is "default", "FILE:LINE", "env NAME" or "flag --NAME".
func (o Origin) String() string {
	switch o.Layer {
	case LayerFile:
		if o.Line == 0 {
			return o.Name
		}
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case LayerEnv:
		return "env " + o.Name
	case LayerFlag:
		return "flag --" + o.Name
	default:
		return "default"
	}
}

// position is String with the column, for errors.
func (o Origin) position() string {
	if o.Layer == LayerFile && o.Column != 0 {
		return fmt.Sprintf("%s:%d:%d", o.Name, o.Line, o.Column)
	}
	return o.String()
}

// Origins maps the path of a key to the place its value was written at. Entries
// of lists have paths too: services[0].port. Keys at their default are absent.
type Origins map[string]Origin

// Of returns the origin of a key, or of the nearest list or section around it.
func (o Origins) Of(path string) Origin {
	for path != "" {
		if origin, ok := o[path]; ok {
			return origin
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return Origin{}
}

// forget drops what is recorded below path, before a later layer replaces the
// value as a whole.
func (o Origins) forget(path string) {
	for p := range o {
		if p == path || strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[") {
			delete(o, p)
		}
	}
}

// Error is one finding: which key, where it was written, and what to do.
// [Load] and [Config.Validate] return all of theirs joined; errors.As finds the
// first.
type Error struct {
	// Key is the path of the key, empty if the finding is about a whole layer.
	Key string
	// Origin is where the offending value was written.
	Origin Origin
	// Message says what is wrong and the remedy.
	Message string
	// Err is the cause, if another package reported it.
	Err error
}

// Error is "config: ORIGIN: KEY: MESSAGE".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("config: ")
	b.WriteString(e.Origin.position())
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	b.WriteString(": " + e.Message)
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
