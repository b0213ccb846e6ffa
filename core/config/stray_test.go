package config

import (
	"slices"
	"testing"
)

func TestSettingsOfPluginsThatDoNotRunAreToldOf(t *testing.T) {
	const stray = "plugins.tabel has no effect, because dataplane does not name tabel; correct the name, or add it to dataplane"
	for _, c := range []struct {
		dataplane string
		want      []string
	}{
		{"[table]", []string{stray}},
		{"[tabel]", nil},
		{"[auto, table]", nil},
		{"off", nil},
	} {
		_, _, warnings := mustLoad(t, sources{file: "{dataplane: " + c.dataplane + ", plugins: {tabel: {colour: red}}}"})
		if !slices.Equal(warnings, c.want) {
			t.Errorf("dataplane %s: warnings %q, want %q", c.dataplane, warnings, c.want)
		}
	}
}
