package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/model"
)

// registrationsFile keeps, in the data directory, what clients registered, in
// the form of a file of services_dir.
const registrationsFile = "registrations.json"

// registrations are the services that clients registered. It is immutable.
type registrations map[model.ServiceKey]config.Service

func readRegistrations(dir string) (registrations, error) {
	r := registrations{}
	if dir == "" {
		return r, nil
	}
	path := filepath.Join(dir, registrationsFile)
	data, err := durable.Read(path, stateBytes)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	var list []config.Service
	if err == nil {
		list, _, err = config.ParseServices(path, data)
	}
	if err != nil {
		return nil, fmt.Errorf("agent: %s cannot be used: %w: make it readable, or delete it and register anew", path, err)
	}
	for _, s := range list {
		r[serviceKey(s)] = s
	}
	return r, nil
}

func (r registrations) save(dir string) error {
	if dir == "" {
		return nil
	}
	path := filepath.Join(dir, registrationsFile)
	data := config.ServicesJSON(r.list())
	if len(data) > stateBytes { // the next start could not read it
		return refuse(api.ErrRefused, "what clients registered would take %d bytes on disk, at most %d are kept: register fewer instances, or with fewer checks", len(data), stateBytes)
	}
	if err := durable.Replace(path, data); err != nil {
		return fmt.Errorf("agent: %s cannot be written: %w: make the data directory writable and free some space", path, err)
	}
	return nil
}

func (r registrations) keys() []model.ServiceKey {
	return slices.SortedFunc(maps.Keys(r), model.ServiceKey.Compare)
}

func (r registrations) list() []config.Service {
	list := make([]config.Service, 0, len(r))
	for _, key := range r.keys() {
		list = append(list, r[key])
	}
	return list
}

// with adds a service, or replaces it. Of its instances those that s leaves
// out stay unless replace is set.
func (r registrations) with(s config.Service, replace bool) registrations {
	key := serviceKey(s)
	if have, ok := r[key]; ok && !replace {
		// In the order of before, so that the same again is the same.
		merged := slices.Clone(have.Instances)
		for _, in := range s.Instances {
			if i := slices.IndexFunc(merged, func(h config.Instance) bool { return h.ID == in.ID }); i >= 0 {
				merged[i] = in
			} else {
				merged = append(merged, in)
			}
		}
		s.Instances = merged
	}
	next := maps.Clone(r)
	next[key] = s
	return next
}

// without drops a service, or one instance; the last one takes the service
// with it. It returns the names of the instances that are gone, and whether
// anything was there to drop.
func (r registrations) without(key model.ServiceKey, instance string) (next registrations, gone []string, found bool) {
	s, ok := r[key]
	if !ok {
		return r, nil, false
	}
	var left []config.Instance
	for _, in := range s.Instances {
		if instance == "" || in.ID == instance {
			gone = append(gone, in.ID)
		} else {
			left = append(left, in)
		}
	}
	if instance != "" && len(gone) == 0 {
		return r, nil, false
	}
	next = maps.Clone(r)
	if s.Instances = left; len(left) == 0 {
		delete(next, key)
	} else {
		next[key] = s
	}
	return next, gone, true
}

func (r registrations) equal(o registrations) bool { return reflect.DeepEqual(r, o) }
