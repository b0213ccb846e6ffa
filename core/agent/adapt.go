package agent

import (
	"context"
	"errors"
	"iter"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/view"
)

var (
	_ api.Identity = self{}
	_ api.Members  = table{}
	_ api.Events   = table{}
	_ api.Settings = settings{}
)

// self answers for the agent.
type self struct{ agent *Agent }

// Status implements api.Identity.
func (i self) Status() api.Status {
	a := i.agent
	self := a.members.Snapshot().Self
	st := api.Status{
		ID:        self.ID,
		Name:      self.Name,
		Cluster:   a.config().Cluster.Name,
		Addr:      self.Addr,
		Version:   a.opts.Version,
		Started:   a.started,
		Listeners: a.listeners,
	}
	if err := a.ready(); err != nil {
		st.NotReady = err.Error()
	}
	return st
}

// ready returns why the agent should not be relied on, or nil.
func (a *Agent) ready() error {
	if a.leaver.leaving() {
		return errors.New("the node " + a.leaver.what())
	}
	if silent := a.members.Snapshot().Silent; silent != "" {
		return errors.New(silent)
	}
	return nil
}

// health has no reason of its own against being live: a process that does not
// answer is what a restart is for.
func (a *Agent) health() api.Health {
	return api.Health{Live: func() error { return nil }, Ready: a.ready}
}

// table gives the member table in the API's words.
type table struct{ agent *Agent }

// Members implements api.Members.
func (t table) Members() (uint64, []api.Member) {
	s := t.agent.members.Snapshot()
	return s.Version, t.all(s)
}

// Events implements api.Events.
func (t table) Events(ctx context.Context, after uint64, follow bool) iter.Seq2[api.Event, error] {
	return func(yield func(api.Event, error) bool) {
		for u, err := range t.agent.members.Events(ctx, after, follow) {
			if errors.Is(err, membership.ErrClosed) {
				return // the agent stops; the API tells followers
			}
			if err != nil {
				yield(api.Event{}, err)
				return
			}
			if !yield(t.event(u), nil) {
				return
			}
		}
	}
}

func (t table) all(s *membership.Snapshot) []api.Member {
	v := t.agent.planes.views.Latest()
	out := make([]api.Member, len(s.Members))
	for i, m := range s.Members {
		out[i] = apiMember(m, v)
	}
	return out
}

func apiMember(m membership.Member, v *view.View) api.Member {
	return api.Member{
		ID: m.ID, Name: m.Name, Addr: m.Addr, Value: m.Value,
		Since: m.Since, Self: m.Self, Role: role(m, v).String(), HeldUntil: m.HeldUntil,
	}
}

// role is that of a member in the newest view, which may not know yet what became of
// it.
func role(m membership.Member, v *view.View) view.Role {
	if r := view.Standing(m.Value.State); r != view.RoleMember {
		return r
	}
	if n := v.Node(m.ID); n != nil && n.Value.State == m.Value.State {
		return n.Role
	}
	return view.RoleMember
}

func (t table) event(u membership.Update) api.Event {
	if u.Reset != nil {
		return api.Event{Seq: u.Reset.Seq, Resync: true, Members: t.all(u.Reset)}
	}
	e := u.Event
	return api.Event{
		Seq: e.Seq, At: e.At, Kind: e.Kind.String(), Member: apiMember(e.Member, t.agent.planes.views.Latest()),
		Was: e.Was, From: e.From, Detail: e.Detail,
	}
}

// settings gives the configuration in force.
type settings struct{ agent *Agent }

// Settings implements api.Settings. A listener is shown as it is bound, which
// tells the port that 0 became.
func (s settings) Settings() []api.Setting {
	loaded := s.agent.settings.Load()
	bound := make(map[string]string)
	for _, l := range s.agent.listeners {
		bound[l.Name] = l.Address
	}
	var out []api.Setting
	for _, e := range loaded.Config.Show(loaded.Origins) {
		if address, ok := bound[e.Key]; ok {
			e.Value = address
		}
		out = append(out, api.Setting{Key: e.Key, Value: e.Value, Origin: e.Origin})
	}
	return out
}
