package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/config"
)

// An agent writes nothing that it could not start with.
func TestRegistrationsThatCouldNotBeReadAgainAreRefused(t *testing.T) {
	dir := t.TempDir()
	with := func(hosts int) registrations {
		s := config.Service{Name: "web", Port: 80}
		for i := range hosts {
			s.Hosts = append(s.Hosts, fmt.Sprintf("h%d.%s", i, strings.Repeat("x.", 500)))
		}
		return registrations{}.with(s, false)
	}
	if err := with(1000).save(dir); err != nil {
		t.Fatal(err)
	}
	var refused *api.Refusal
	if err := with(9000).save(dir); !errors.As(err, &refused) || !strings.Contains(err.Error(), "at most 8388608") {
		t.Errorf("9 MB: %v, want a refusal with the bound", err)
	}
	info, err := os.Stat(filepath.Join(dir, registrationsFile))
	if err != nil || info.Size() > stateBytes || info.Size() < 1_000_000 {
		t.Errorf("the file of before is not there any more: %v, %v", info, err)
	}
}
