package agent

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/health"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

// sourceAPI is the name of the source that clients register with.
const sourceAPI = "api"

// listed is what one place says that runs here.
type listed struct {
	services []config.Service
	where    func(i int) string // where service i is written
}

// placed is a service and where it is written.
type placed struct {
	key     model.ServiceKey
	service config.Service
	where   string
}

// unused is a service that another source has already.
type unused struct {
	key        model.ServiceKey
	where, why string
}

func (u unused) String() string {
	return fmt.Sprintf("service %s of %s is not used: %s", u.key, u.where, u.why)
}

// compose joins the sources. A service belongs to the first of them that has
// it: were it put together from several, removing a file would leave something
// that nobody wrote.
func compose(sources []listed) (all []placed, left []unused) {
	owner := make(map[model.ServiceKey]string)
	captured := make(map[netip.AddrPort]placed)
	for _, from := range sources {
		for i, s := range from.services {
			p := placed{key: serviceKey(s), service: s, where: from.where(i)}
			why := ""
			if where, taken := owner[p.key]; taken {
				why = where + " has it too; keep one of them"
			}
			for _, address := range s.Intercept {
				if other, taken := captured[address]; taken && why == "" {
					why = fmt.Sprintf("%s of %s captures %s too; an address leads to one service", other.key, other.where, address)
				}
			}
			if why != "" {
				left = append(left, unused{p.key, p.where, why})
				continue
			}
			owner[p.key] = p.where
			for _, address := range s.Intercept {
				captured[address] = p
			}
			all = append(all, p)
		}
	}
	return all, left
}

func serviceKey(s config.Service) model.ServiceKey {
	ns := s.Namespace
	if ns == "" {
		ns = model.DefaultNamespace
	}
	return model.ServiceKey{Namespace: ns, Name: s.Name}
}

// definition is what the services make this node say of itself. registered
// tells, in unix ms, when each was first defined here.
func definition(all []placed, advertise netip.Addr, registered map[string]int64) record.Definition {
	def := record.Definition{Advertise: advertise}
	for _, p := range all {
		def.Services = append(def.Services, modelService(p.key, p.service, registered[p.key.String()]))
		for _, in := range p.service.Instances {
			def.Instances = append(def.Instances, model.Instance{
				ID: in.ID, Service: p.key, Addr: in.Address, HostPort: in.HostPort,
				Weight: uint16(in.Weight), // checked to be one
			})
		}
	}
	return def
}

func modelService(key model.ServiceKey, s config.Service, registered int64) model.Service {
	out := model.Service{
		Key: key, VIP: s.VIP, Intercept: s.Intercept, Affinity: s.Affinity, Hosts: s.Hosts, DrainTime: s.Drain, Registered: registered,
	}
	if s.Protocol != "udp" {
		out.Ports = append(out.Ports, model.ServicePort{Port: s.Port, Protocol: model.TCP})
	}
	if s.Protocol == "udp" || s.Protocol == "both" {
		out.Ports = append(out.Ports, model.ServicePort{Port: s.Port, Protocol: model.UDP})
	}
	if s.OnEmpty == "refuse" {
		out.OnEmpty = model.OnEmptyRefuse
	}
	out.Balance, _ = model.ParseBalance(s.Balance) // checked to be one
	for _, r := range s.Routes {
		out.Routes = append(out.Routes, model.Route(r))
	}
	return out
}

// checked are the instances as core/health wants them.
func checked(all []placed) []health.Instance {
	var out []health.Instance
	for _, p := range all {
		for _, in := range p.service.Instances {
			h := health.Instance{Key: health.InstanceKey{Service: p.key, ID: in.ID}, Addr: in.Address}
			for _, c := range in.Checks {
				h.Checks = append(h.Checks, healthCheck(c, in.Address))
			}
			out = append(out, h)
		}
	}
	return out
}

func healthCheck(c config.Check, own netip.AddrPort) health.Check {
	out := health.Check{
		Interval: c.Interval, Timeout: c.Timeout,
		SuccessBeforePassing: c.SuccessBeforePassing, FailuresBeforeCritical: c.FailuresBeforeCritical,
	}
	switch {
	case c.TCP.IsSet():
		out.Kind = health.TCP
		if to := c.TCP.AddrPort(own); to != own {
			out.Address = to
		}
	case c.GRPC.IsSet():
		out.Kind, out.Service = health.GRPC, c.GRPC.Service()
	default:
		// The configuration was validated by the same rules.
		target, _ := health.ParseHTTP(c.HTTP)
		out.Kind, out.Address, out.Path = health.HTTP, target.Address, target.Path
	}
	return out
}

// drains says which instances are to get no new connections, and since when.
type drains struct {
	stopping bool // all of them, as the agent stops
	wanted   maintenance
	since    map[health.InstanceKey]time.Time
}

// states is the vector for the definition's instances: what their checks say,
// unless they drain. next is when a drain time is over, zero if none is running.
func (d *drains) states(all []placed, healthy map[health.InstanceKey]health.Status, now time.Time) (out []model.InstanceState, next time.Time) {
	was := d.since
	d.since = make(map[health.InstanceKey]time.Time)
	for _, p := range all {
		for _, in := range p.service.Instances {
			key := health.InstanceKey{Service: p.key, ID: in.ID}
			state := model.InstanceCritical
			if healthy[key].Passing {
				state = model.InstancePassing
			}
			if d.wanted.covers(p.key, in.ID) || d.stopping {
				begun, known := was[key]
				if !known {
					begun = now
				}
				d.since[key] = begun
				until := begun.Add(p.service.Drain)
				switch {
				case state == model.InstanceCritical: // it gets no connections as it is
				case d.stopping || p.service.Drain == 0:
					state = model.InstanceDraining
				case now.Before(until):
					state = model.InstanceDraining
					if next.IsZero() || until.Before(next) {
						next = until
					}
				default:
					state = model.InstanceDrained
				}
			}
			out = append(out, state)
		}
	}
	return out, next
}
