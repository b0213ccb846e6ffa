package reconcile

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"slices"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
)

// Project returns what a view means to a data plane of this node. Session,
// generation and digest are not set.
func Project(v *view.View) *dataplane.Snapshot {
	p := newProjector()
	p.advance(v)
	p.snapshot.Completeness = completeness(v)
	return p.snapshot
}

// projector keeps the snapshot of the newest view. Its cost follows what
// changed between two views.
type projector struct {
	view     *view.View
	snapshot *dataplane.Snapshot // content only
	seed     maphash.Seed
	digest   uint64 // sum over the services: their order does not matter
}

func newProjector() *projector {
	return &projector{snapshot: &dataplane.Snapshot{}, seed: maphash.MakeSeed()}
}

// advance goes on to a view and reports whether the content changed.
func (p *projector) advance(v *view.View) bool {
	changes := view.Diff(p.view, v)
	p.view = v
	var edit *dataplane.Editor
	for _, c := range changes {
		key := dataplane.Key(c.Key)
		was, is := p.snapshot.Service(key), projectService(c.New)
		if _, changed := dataplane.Compare(was, is, nil); !changed {
			continue
		}
		if edit == nil {
			edit = p.snapshot.Edit()
		}
		p.digest += p.hash(is) - p.hash(was)
		if is == nil {
			edit.Delete(key)
		} else {
			edit.Set(is)
		}
	}
	if edit == nil {
		return false
	}
	p.snapshot = edit.Done()
	return true
}

// hash is 0 for no service.
func (p *projector) hash(s *dataplane.Service) uint64 {
	if s == nil {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(p.seed)
	number := func(n uint64) {
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], n)
		_, _ = h.Write(b[:]) // never fails
	}
	text := func(all ...string) {
		number(uint64(len(all)))
		for _, s := range all {
			number(uint64(len(s)))
			_, _ = h.WriteString(s)
		}
	}
	text(s.Key.Namespace, s.Key.Name)
	for _, f := range s.Frontends {
		number(maphash.Comparable(p.seed, f))
	}
	number(maphash.Comparable(p.seed, s.Endpoints))
	number(uint64(s.Balance))
	number(maphash.Comparable(p.seed, s.Affinity))
	text(s.Hosts...)
	for _, r := range s.Routes {
		text(r.Host, r.PathPrefix)
		text(r.Methods...)
		var headers uint64
		for k, v := range r.Headers {
			headers += maphash.Comparable(p.seed, [2]string{k, v})
		}
		number(headers)
	}
	number(uint64(s.DrainTime))
	number(uint64(s.Since))
	return h.Sum64()
}

func projectService(s *view.Service) *dataplane.Service {
	if s == nil {
		return nil
	}
	d := &s.Definition
	out := &dataplane.Service{
		Key: dataplane.Key(s.Key), Frontends: frontends(d), Balance: dataplane.Balance(d.Balance),
		Hosts: slices.Clone(d.Hosts), DrainTime: d.DrainTime, Since: s.Since,
	}
	if d.Affinity > 0 {
		out.Affinity = dataplane.Affinity{ByClient: true, TTL: d.Affinity}
	}
	for _, r := range d.Routes {
		out.Routes = append(out.Routes, dataplane.Route(r))
	}
	endpoints := make([]dataplane.Endpoint, 0, len(s.Endpoints))
	for _, e := range s.Endpoints {
		endpoints = append(endpoints, dataplane.Endpoint{
			ID: e.ID, Name: e.Instance, Addr: e.Addr, AddrForeign: e.AddrForeign, State: dataplane.EndpointState(e.State),
			Weight: e.Weight, Zone: e.Zone, DrainUntil: e.DrainUntil,
		})
	}
	out.Endpoints = dataplane.NewEndpoints(endpoints...)
	return out
}

// frontends are the ports of the VIP, and the intercept addresses of this node
// for each of the protocols.
func frontends(d *model.Service) []dataplane.Frontend {
	var out []dataplane.Frontend
	var protocols []model.Protocol
	for _, p := range d.Ports {
		if d.VIP.IsValid() {
			out = append(out, dataplane.Frontend{Addr: netip.AddrPortFrom(d.VIP, p.Port), Protocol: dataplane.Protocol(p.Protocol), Kind: dataplane.FrontendVIP})
		}
		if !slices.Contains(protocols, p.Protocol) {
			protocols = append(protocols, p.Protocol)
		}
	}
	if len(protocols) == 0 {
		protocols = append(protocols, model.TCP)
	}
	onEmpty := dataplane.OnEmptyPass
	if d.OnEmpty == model.OnEmptyRefuse {
		onEmpty = dataplane.OnEmptyRefuse
	}
	for _, a := range d.Intercept {
		for _, p := range protocols {
			out = append(out, dataplane.Frontend{Addr: a, Protocol: dataplane.Protocol(p), Kind: dataplane.FrontendIntercept, OnEmpty: onEmpty})
		}
	}
	return out
}

// reasons tells why endpoints of an older view are not in a newer one.
func reasons(was, is *view.View) func(dataplane.Key, dataplane.Endpoint) dataplane.Removal {
	return func(k dataplane.Key, e dataplane.Endpoint) dataplane.Removal {
		key := model.ServiceKey(k)
		s := was.Service(key)
		if s == nil {
			return dataplane.Removal{}
		}
		old, found := s.Endpoint(e.ID)
		if !found {
			return dataplane.Removal{}
		}
		reason, since := is.Removal(key, old.Node, old.Instance)
		return dataplane.Removal{Reason: removalReason(reason), SuspectedSince: since}
	}
}

func removalReason(r view.RemovalReason) dataplane.RemovalReason {
	switch r {
	case view.Dead:
		return dataplane.RemovedDead
	case view.Left:
		return dataplane.RemovedLeft
	case view.Failing:
		return dataplane.RemovedFailing
	case view.Drained:
		return dataplane.RemovedDrained
	case view.Deregistered:
		return dataplane.RemovedDeregistered
	}
	return dataplane.RemovedUnknown
}

func completeness(v *view.View) dataplane.Completeness {
	switch v.Completeness {
	case view.Exchanged:
		return dataplane.Exchanged
	case view.Alone:
		return dataplane.Alone
	case view.TimedOut:
		if v.Len() == 0 {
			return dataplane.Incomplete
		}
		return dataplane.TimedOut
	}
	return dataplane.Incomplete
}
