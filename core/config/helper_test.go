package config

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

const testFile = "/etc/fairlead/fairlead.yaml"

// sources are the layers of one test as text.
type sources struct {
	file string // content of testFile; "-" for no file at all
	env  []string
	args []string
	host string // "" for h1
}

func (s sources) options(t testing.TB) Options {
	t.Helper()
	o := Options{Environ: s.env, Hostname: "h1"}
	if s.host != "" {
		o.Hostname = strings.TrimPrefix(s.host, "-")
	}
	if s.file != "-" {
		o.File = testFile
		o.ReadFile = func(path string) ([]byte, error) {
			if path != testFile {
				return nil, fmt.Errorf("read %s: %w", path, fs.ErrNotExist)
			}
			return []byte(s.file), nil
		}
	}
	if s.args != nil {
		fs := pflag.NewFlagSet("agent", pflag.ContinueOnError)
		RegisterFlags(fs)
		if err := fs.Parse(s.args); err != nil {
			t.Fatalf("flags %q: %v", s.args, err)
		}
		o.Flags = fs
	}
	return o
}

func mustLoad(t testing.TB, s sources) (*Config, Origins, []string) {
	t.Helper()
	cfg, origins, warnings, err := Load(s.options(t))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return cfg, origins, warnings
}

// loadErrors returns the findings of a load that has to fail.
func loadErrors(t testing.TB, s sources) []string {
	t.Helper()
	cfg, origins, warnings, err := Load(s.options(t))
	if err == nil {
		t.Fatalf("Load accepted it: %v", cfg.Show(origins))
	}
	if cfg != nil || origins != nil || warnings != nil {
		t.Error("Load returned values beside its error")
	}
	var one *Error
	if !errors.As(err, &one) {
		t.Errorf("no *Error in %v", err)
	}
	return strings.Split(err.Error(), "\n")
}

// wantErrors checks that each finding has the parts, in order, and that there
// are no others.
func wantErrors(t *testing.T, s sources, want ...string) {
	t.Helper()
	got := loadErrors(t, s)
	if len(got) != len(want) {
		t.Errorf("%d findings, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
		return
	}
	for i := range want {
		if !strings.HasPrefix(got[i], "config: ") {
			t.Errorf("finding without prefix: %s", got[i])
		}
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("finding %d is\n\t%s\nwithout\n\t%s", i, got[i], want[i])
		}
	}
}
