package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/model"
)

// maintenanceFile keeps, in the data directory, what was taken out of service.
const maintenanceFile = "maintenance.json"

// out is what is taken out of service: an instance; without a name of one, a
// service; without a service, the whole node.
type out struct {
	Service  string `json:"service,omitempty"` // namespace/name
	Instance string `json:"instance,omitempty"`
}

// within reports whether o is o itself or a part of wider.
func (o out) within(wider out) bool {
	return wider.Service == "" || wider.Service == o.Service && (wider.Instance == "" || wider.Instance == o.Instance)
}

func (o out) String() string {
	switch {
	case o.Service == "":
		return "the whole node"
	case o.Instance == "":
		return "service " + o.Service
	}
	return fmt.Sprintf("instance %s of service %s", o.Instance, o.Service)
}

// maintenance is all that is taken out of service. It is immutable.
type maintenance []out

// covers reports whether an instance is out of service.
func (m maintenance) covers(service model.ServiceKey, instance string) bool {
	if len(m) == 0 {
		return false
	}
	o := out{service.String(), instance}
	return slices.ContainsFunc(m, o.within)
}

// with adds o; what is part of it needs no mention any more.
func (m maintenance) with(o out) maintenance {
	if slices.ContainsFunc(m, o.within) {
		return m
	}
	return append(m.without(o), o)
}

// without drops o and what is part of it.
func (m maintenance) without(o out) maintenance {
	var left maintenance
	for _, have := range m {
		if !have.within(o) {
			left = append(left, have)
		}
	}
	return left
}

func readMaintenance(dir string) (maintenance, error) {
	if dir == "" {
		return nil, nil
	}
	path := filepath.Join(dir, maintenanceFile)
	var m maintenance
	data, err := durable.Read(path, stateBytes)
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("agent: %s cannot be used: %w: make it readable, or delete it and put everything back into service", path, err)
	}
	return m, nil
}

func (m maintenance) save(dir string) error {
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, maintenanceFile)
	data, err := json.Marshal(m)
	if err == nil {
		err = durable.Replace(path, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("agent: %s cannot be written: %w: make the data directory writable and free some space", path, err)
	}
	return nil
}
