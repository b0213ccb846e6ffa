package model

import (
	"errors"
	"testing"
)

func TestParseServiceKey(t *testing.T) {
	for text, want := range map[string]ServiceKey{
		"web":               {Namespace: DefaultNamespace, Name: "web"},
		"ops/db":            {Namespace: "ops", Name: "db"},
		"db.ops":            {Namespace: "ops", Name: "db"},
		"leader.raft":       {Namespace: "raft", Name: "leader"},
		"ops/a.b":           {Namespace: "ops", Name: "a.b"}, // of a node that does not mind
		"":                  {},
		"/":                 {},
		".":                 {},
		"web.":              {},
		".ops":              {},
		"a/b/c":             {},
		"web.ops.mesh.test": {},
	} {
		got, err := ParseServiceKey(text)
		if got != want || (err == nil) != (want != ServiceKey{}) || err != nil && !errors.Is(err, ErrServiceKey) {
			t.Errorf("%q is %+v, %v, want %+v", text, got, err, want)
		}
	}
}
