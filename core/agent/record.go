package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/durable"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

// registeredFile keeps, in the data directory, when each service was first
// defined here. The oldest of disagreeing definitions counts, so a restart
// must not make one look new.
const registeredFile = "registered.json"

// registeredBytes bounds that file: record.MaxServices entries.
const registeredBytes = 1 << 20

// publishRecord tells the cluster what the configuration says runs here. That
// it is nothing needs telling after a restart: others hold the record of the
// run before.
func (a *Agent) publishRecord() error {
	cfg := a.config()
	if len(cfg.Services) == 0 {
		if a.members.Snapshot().Self.Value.Epoch == 1 {
			return nil
		}
		return a.members.SetRecord(nil, nil)
	}
	registered, err := a.registered(cfg)
	if err != nil {
		return err
	}
	def, states := ownRecord(cfg, registered)
	for i, s := range states {
		if s == model.InstanceCritical {
			in := def.Instances[i]
			a.log.Warn("an instance with checks gets no connections: checks are not run by this version; remove them to use it without",
				"service", in.Service.String(), "instance", in.ID)
		}
	}
	definition, err := record.Encode(def)
	if err != nil {
		return err
	}
	vector, err := record.EncodeVector(states)
	if err != nil {
		return err
	}
	return a.members.SetRecord(definition, vector)
}

// ownRecord is what a configuration makes this node say of itself. An instance
// without checks is passing; one with checks is critical until one passed.
func ownRecord(cfg *config.Config, registered map[string]int64) (record.Definition, []model.InstanceState) {
	def := record.Definition{Advertise: cfg.AdvertiseAddr().Addr()}
	var states []model.InstanceState
	for _, s := range cfg.Services {
		key := serviceKey(s)
		svc := model.Service{Key: key, VIP: s.VIP, Intercept: s.Intercept, Registered: registered[key.String()]}
		if s.Port != 0 {
			svc.Ports = []model.ServicePort{{Port: s.Port, Protocol: model.TCP}}
		}
		def.Services = append(def.Services, svc)
		for _, in := range s.Instances {
			def.Instances = append(def.Instances, model.Instance{ID: in.ID, Service: key, Addr: in.Address, HostPort: in.HostPort, Weight: 1})
			state := model.InstancePassing
			if len(in.Checks) > 0 {
				state = model.InstanceCritical
			}
			states = append(states, state)
		}
	}
	return def, states
}

func serviceKey(s config.Service) model.ServiceKey {
	ns := s.Namespace
	if ns == "" {
		ns = model.DefaultNamespace
	}
	return model.ServiceKey{Namespace: ns, Name: s.Name}
}

// registered returns the time, in unix ms, at which each configured service was
// first defined here, and remembers new ones.
func (a *Agent) registered(cfg *config.Config) (map[string]int64, error) {
	var path string
	known := make(map[string]int64)
	if !cfg.Node.InMemory && cfg.Node.DataDir != "" {
		path = filepath.Join(cfg.Node.DataDir, registeredFile)
		data, err := durable.Read(path, registeredBytes)
		if err == nil {
			err = json.Unmarshal(data, &known)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("agent: %s cannot be used: %w: make it readable, or delete it and let services count as defined anew", path, err)
		}
	}
	now, grew := a.opts.Now().UnixMilli(), false
	times := make(map[string]int64, len(cfg.Services))
	for _, s := range cfg.Services {
		key := serviceKey(s).String()
		if _, have := known[key]; !have {
			known[key], grew = now, true
		}
		times[key] = known[key]
	}
	if path == "" || !grew && len(times) == len(known) {
		return times, nil
	}
	data, err := json.MarshalIndent(times, "", " ") // services that are gone are forgotten
	if err == nil {
		err = durable.Replace(path, append(data, '\n'))
	}
	if err != nil {
		return nil, fmt.Errorf("agent: %s cannot be written: %w: make the data directory writable and free some space", path, err)
	}
	return times, nil
}
