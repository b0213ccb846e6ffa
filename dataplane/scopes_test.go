package dataplane_test

import (
	"slices"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

// The first rule that holds counts; without one it is what the provider says of
// itself.
func TestScopesWith(t *testing.T) {
	both, far := []dataplane.Scope{dataplane.ScopeLocal, dataplane.ScopeForwarded}, []dataplane.Scope{dataplane.ScopeForwarded}
	near := []dataplane.Scope{dataplane.ScopeLocal}
	info := dataplane.Info{Scopes: both, ScopeRules: []dataplane.ScopeRule{
		{Setting: "mode", Value: "forwarded", Scopes: far},
		{Setting: "deep", Value: "true", Scopes: near},
	}}
	for config, want := range map[string][]dataplane.Scope{
		``:                                 both,
		`{}`:                               both,
		`{"mode": "all"}`:                  both,
		`{"mode": "forwarded"}`:            far,
		`{"deep": true}`:                   near,
		`{"deep": "true"}`:                 near,
		`{"deep": false}`:                  both,
		`{"deep":true,"mode":"forwarded"}`: far,
		`{"mode": ["forwarded"]}`:          both,
		`["mode"]`:                         both,
	} {
		if got := info.ScopesWith([]byte(config)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", config, got, want)
		}
	}
	if got := (dataplane.Info{Scopes: near}).ScopesWith([]byte(`{"mode":"forwarded"}`)); !slices.Equal(got, near) {
		t.Errorf("without rules: %v", got)
	}
}
