package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/model"
)

var _ api.Registrar = (*services)(nil)

// maxDefinitionBytes bounds one registration.
const maxDefinitionBytes = 1 << 20

// Register implements api.Registrar.
func (s *services) Register(name, text string, replace bool) (api.Registration, error) {
	if name == "" {
		name = "definition"
	}
	if len(text) > maxDefinitionBytes {
		return api.Registration{}, refuse(api.ErrInvalid, "%s has %d bytes, at most %d are allowed", name, len(text), maxDefinitionBytes)
	}
	list, _, err := config.ParseServices(name, []byte(text))
	if err != nil {
		return api.Registration{}, &api.Refusal{Kind: api.ErrInvalid, Err: trimmed(err)}
	}
	if len(list) == 0 {
		return api.Registration{}, refuse(api.ErrInvalid, "%s has no service", name)
	}
	var done api.Registration
	s.mu.Lock()
	next := s.registered
	for _, service := range list {
		next = next.with(service, replace)
		done.Services = append(done.Services, serviceKey(service))
	}
	done.Changed = !next.equal(s.registered)
	err = s.register(next, done.Services)
	s.mu.Unlock()
	if err == nil {
		err = s.publish()
	}
	return done, err
}

// register makes next what clients registered, all of it or nothing. The
// services of these keys must not be another source's. The caller holds the
// mutex.
func (s *services) register(next registrations, keys []model.ServiceKey) (err error) {
	was := s.registered
	if next.equal(was) {
		return ownedByAPI(s.all, s.left, keys)
	}
	s.registered = next
	defer func() {
		if err != nil {
			s.registered = was
		}
	}()
	p, err := s.plan()
	if err != nil {
		return &api.Refusal{Kind: api.ErrRefused, Err: err}
	}
	if err := ownedByAPI(p.all, p.left, keys); err != nil {
		return err
	}
	if err := next.save(s.dir); err != nil {
		return err
	}
	if err := s.use(p); err != nil {
		return errors.Join(err, was.save(s.dir))
	}
	return nil
}

// ownedByAPI refuses keys that another source has, or that take what another
// service has.
func ownedByAPI(all []placed, left []unused, keys []model.ServiceKey) error {
	for _, key := range keys {
		for _, u := range left {
			if u.key == key && u.where == sourceAPI {
				why := u.why
				if where := whereIs(all, key); where != "" {
					why = where + " has it: change it there, or remove it there first"
				}
				return refuse(api.ErrRefused, "service %s cannot be registered: %s", key, why)
			}
		}
	}
	return nil
}

// Deregister implements api.Registrar.
func (s *services) Deregister(key model.ServiceKey, instance string) (gone []string, err error) {
	s.mu.Lock()
	next, gone, found := s.registered.without(key, instance)
	if found {
		err = s.register(next, nil)
	} else {
		err = s.notRegistered(key, instance)
	}
	if err == nil && len(s.drains.wanted) > 0 {
		// Should the name come again, it is another one's.
		err = s.maintain(s.drains.wanted.without(out{key.String(), instance}))
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return gone, s.publish()
}

func (s *services) notRegistered(key model.ServiceKey, instance string) error {
	have, registered := s.registered[key]
	where := whereIs(s.all, key)
	switch {
	case isBuiltin(key):
		return refuse(api.ErrRefused, "service %s was not registered: the servers of the store publish it themselves", key)
	case where != "" && where != sourceAPI:
		return refuse(api.ErrRefused, "service %s was not registered: %s has it, remove it there", key, where)
	case registered:
		var ids []string
		for _, in := range have.Instances {
			ids = append(ids, in.ID)
		}
		return refuse(api.ErrNotFound, "service %s has no instance %q registered on this node%s", key, instance, near(instance, ids))
	}
	var names []string
	for _, k := range s.registered.keys() {
		names = append(names, k.String())
	}
	return refuse(api.ErrNotFound, "service %s is not registered on this node%s", key, near(key.String(), names))
}

// near names what was meant, or all there is if that is not much.
func near(name string, known []string) string {
	// The usual namespace would make any two names look alike.
	short := func(s string) string { return strings.TrimPrefix(s, model.DefaultNamespace+"/") }
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = short(k)
	}
	switch hint := config.DidYouMean(short(name), names); {
	case hint != "":
		return hint
	case len(names) > 0 && len(names) <= 10:
		return "; there are: " + strings.Join(names, ", ")
	}
	return ""
}

// Maintain implements api.Registrar.
func (s *services) Maintain(on bool, key model.ServiceKey, instance string) (changed bool, err error) {
	var o out
	if key.Name != "" {
		o = out{key.String(), instance}
	}
	s.mu.Lock()
	changed, err = s.maintainOne(on, o, key)
	s.mu.Unlock()
	if err != nil || !changed {
		return false, err
	}
	return true, s.publish()
}

func (s *services) maintainOne(on bool, o out, key model.ServiceKey) (changed bool, err error) {
	if err := s.runsHere(o, key); err != nil {
		return false, err
	}
	was := s.drains.wanted
	next := was.without(o)
	if on {
		next = was.with(o)
	}
	for _, have := range next {
		if !on && o.within(have) {
			return false, refuse(api.ErrRefused, "%s stays in maintenance, because %s is: put that back into service", o, have)
		}
	}
	if slices.Equal(next, was) {
		return false, nil
	}
	return true, s.maintain(next)
}

// maintain keeps what is out of service. The caller holds the mutex.
func (s *services) maintain(next maintenance) error {
	if err := next.save(s.dir); err != nil {
		return err
	}
	s.drains.wanted = next
	return nil
}

func (s *services) runsHere(o out, key model.ServiceKey) error {
	if o.Service == "" {
		return nil
	}
	if isBuiltin(key) {
		return refuse(api.ErrRefused, "service %s is built in, and follows what the servers of the store are: to lead elsewhere, `fairlead raft transfer`", key)
	}
	var names []string
	for _, p := range s.all {
		names = append(names, p.key.String())
		if p.key != key {
			continue
		}
		var ids []string
		for _, in := range p.service.Instances {
			if ids = append(ids, in.ID); in.ID == o.Instance {
				return nil
			}
		}
		if o.Instance == "" {
			return nil
		}
		return refuse(api.ErrNotFound, "service %s has no instance %q on this node%s", key, o.Instance, near(o.Instance, ids))
	}
	return refuse(api.ErrNotFound, "service %s does not run on this node%s", key, near(key.String(), names))
}

func refuse(kind error, format string, args ...any) error {
	return &api.Refusal{Kind: kind, Err: fmt.Errorf(format, args...)}
}

// trimmed drops what every finding begins with: the caller wrote the text, and
// does not ask which package read it.
func trimmed(err error) error {
	return errors.New(strings.ReplaceAll("\n"+err.Error(), "\nconfig: ", "\n")[1:])
}
