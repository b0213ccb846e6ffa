package pluginhost

import (
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/config"
)

func TestFromConfig(t *testing.T) {
	cfg, origins, _, err := config.Load(config.Options{
		File:     "f.yaml",
		ReadFile: func(string) ([]byte, error) { return []byte("plugins: {l7: {listen: \"x\", depth: 3}}\n"), nil },
		Environ:  []string{"FAIRLEAD_PLUGIN_L7_WORKERS=4"},
		Hostname: "n1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if w := WishOf(cfg, origins); w.Written || !slices.Equal(w.Names, []string{"auto", "l7"}) {
		t.Errorf("wish is %+v", w)
	}
	s := SettingsOf(cfg, origins)["l7"]
	if s.Values["workers"] != "4" || !s.Text("workers") || s.Text("listen") {
		t.Errorf("settings are %+v", s)
	}
	if o := s.Origin("workers"); o != "env FAIRLEAD_PLUGIN_L7_WORKERS" {
		t.Errorf("origin is %s", o)
	}
	if o := s.Origin("depth"); !strings.HasPrefix(o, "f.yaml:1") {
		t.Errorf("origin is %s", o)
	}
	cfg, origins, _, err = config.Load(config.Options{Environ: []string{"FAIRLEAD_DATAPLANE=off"}, Hostname: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if w := WishOf(cfg, origins); !w.Written || len(w.Names) != 0 {
		t.Errorf("wish is %+v", w)
	}
}

func TestSearchOf(t *testing.T) {
	s := SearchOf([]string{"FAIRLEAD_PLUGIN_DIRS=/a:/b"}, "/usr/bin/fairlead")
	if !slices.Equal(s.Dirs, []string{"/a", "/b"}) || s.Binary != "/usr/bin/fairlead" {
		t.Errorf("search is %+v", s)
	}
	if s := SearchOf(nil, ""); len(s.Dirs) != 0 {
		t.Errorf("search is %+v", s)
	}
}
