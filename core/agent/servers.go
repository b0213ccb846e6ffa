package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/control"
	system "github.com/fairlead/fairlead/core/follow"
	"github.com/fairlead/fairlead/core/formation"
	"github.com/fairlead/fairlead/core/raft"
	"github.com/fairlead/fairlead/core/server"
)

// servers changes who keeps the store.
type servers struct{ agent *Agent }

var _ api.Servers = servers{}

const (
	// readTimeout bounds the wait for a leader of who asks for a change.
	readTimeout = 5 * time.Second
	// removalLook is how often it is looked whether a server is gone.
	removalLook = 300 * time.Millisecond
	// cancelTimeout bounds the attempt to take a wish back.
	cancelTimeout = 2 * time.Second
)

// here returns this agent's server, which works.
func (s servers) here() (*server.Server, error) {
	st := s.agent.storage
	h := st.server()
	switch {
	case h == nil:
		return nil, refuse(api.ErrRefused, "%s: ask an agent that is one%s", st.reason(), s.others())
	case h.Err() != nil:
		return nil, refuse(api.ErrRefused, "the server of this agent failed (%w): ask another%s", h.Err(), s.others())
	case st.served.Load() == nil: // it could only wait for a leader who does not speak to it
		return nil, refuse(api.ErrRefused, "this agent's server is in reserve, and no member of the group: ask one that is%s", s.others())
	}
	return h, nil
}

// others names the servers that are known.
func (s servers) others() string {
	var names []string
	for _, o := range s.agent.otherServers() {
		names = append(names, o.Name)
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return ": " + strings.Join(names, ", ")
}

// fresh has a server know all that was written, or says that nobody leads.
func (s servers) fresh(ctx context.Context, h *server.Server) error {
	short, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	_, err := h.Read(short)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return refuse(api.ErrRefused, "nobody leads the store as far as this agent knows: most of the servers have to run and to reach each other (%w)", err)
}

// find returns the member that somebody names.
func find(h *server.Server, name string) (server.Member, error) {
	var found []server.Member
	var all []string
	members := h.Status().Members
	id, err := strconv.ParseUint(name, 16, 64)
	for _, m := range members {
		if m.Name == name && name != "" {
			found = append(found, m)
		}
		all = append(all, called(m))
	}
	if len(found) == 0 && err == nil && len(name) == 16 {
		for _, m := range members {
			if m.ID == id {
				found = append(found, m)
			}
		}
	}
	slices.Sort(all)
	switch len(found) {
	case 0:
		return server.Member{}, refuse(api.ErrNotFound, "no server of the store is called %q: there are %s", name, strings.Join(all, ", "))
	case 1:
		return found[0], nil
	}
	var ids []string
	for _, m := range found {
		ids = append(ids, fmt.Sprintf("%016x", m.ID))
	}
	return server.Member{}, refuse(api.ErrRefused, "%d servers of the store are called %s: name one by its id, %s", len(found), name, strings.Join(ids, ", "))
}

func called(m server.Member) string {
	if m.Name == "" {
		return fmt.Sprintf("%016x", m.ID)
	}
	return m.Name
}

// Transfer implements api.Servers.
func (s servers) Transfer(ctx context.Context, name string) (api.RaftMember, error) {
	h, err := s.here()
	if err != nil {
		return api.RaftMember{}, err
	}
	m, err := find(h, name)
	if err != nil {
		return api.RaftMember{}, err
	}
	switch {
	case m.Learner:
		return api.RaftMember{}, refuse(api.ErrRefused, "%s is a learner, which has no vote and cannot lead", called(m))
	case h.State().Leader == m.ID:
		return memberOf(m), nil
	}
	if err := s.agent.storage.part.Transfer(ctx, m.ID); err != nil {
		if ctx.Err() != nil {
			return api.RaftMember{}, ctx.Err()
		}
		return api.RaftMember{}, refuse(api.ErrRefused, "the leadership was not handed to %s: %w", called(m), err)
	}
	leader := h.Status()
	for _, now := range leader.Members {
		if now.ID == leader.Leader {
			return memberOf(now), nil
		}
	}
	return memberOf(m), nil
}

func memberOf(m server.Member) api.RaftMember {
	return api.RaftMember{ID: m.ID, Name: m.Name, Addr: m.RPC}
}

// Remove implements api.Servers.
func (s servers) Remove(ctx context.Context, r api.RaftRemove, tell func(api.RaftRemoved) error) error {
	h, err := s.here()
	if err != nil {
		return err
	}
	if err := s.refuseSet(h); err != nil {
		return err
	}
	if err := s.fresh(ctx, h); err != nil {
		return err
	}
	m, err := find(h, r.Server)
	if err != nil {
		return err
	}
	if r.Cancel {
		return s.cancel(ctx, h, m, tell)
	}
	if err := s.mayLeave(h, m, r.Force); err != nil {
		return err
	}
	if err := control.AskToLeave(ctx, h, m.ID, r.Force); err != nil {
		return fmt.Errorf("the wish was not written: %w", err)
	}
	return s.await(ctx, h, m, tell)
}

// refuseSet refuses to change a static set.
func (s servers) refuseSet(h *server.Server) error {
	if names := h.Identity().Set; len(names) > 0 {
		return refuse(api.ErrRefused, "the servers are a static set (raft.peers: %s), and stay as they are: to change them, `fairlead snapshot save` and restore that to another set", strings.Join(names, ", "))
	}
	return nil
}

func (s servers) cancel(ctx context.Context, h *server.Server, m server.Member, tell func(api.RaftRemoved) error) error {
	if !slices.Contains(control.Leaving(h.View()), m.ID) {
		return refuse(api.ErrRefused, "nobody asked for the removal of %s", called(m))
	}
	if err := control.CancelLeaving(ctx, h, m.ID); err != nil {
		return fmt.Errorf("the wish was not taken back: %w", err)
	}
	return tell(api.RaftRemoved{ID: m.ID, Name: m.Name, State: api.RemovalCancelled})
}

// mayLeave says why a server must not be removed.
func (s servers) mayLeave(h *server.Server, m server.Member, force bool) error {
	conf := h.Members()
	err := control.Removal{
		Voters: conf.GetVoters(), Learners: conf.GetLearners(), Known: control.Remaining(h.View(), conf, s.agent.servers(h)),
		Leaving: control.Leaving(h.View()), Target: s.agent.config().Raft.Voters,
	}.MayLeave(m.ID, force)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, control.ErrNoSpare) && !force:
		return refuse(api.ErrRefused, "%s stays: %w; or use --force, and go on with fewer", called(m), err)
	}
	return refuse(api.ErrRefused, "%s stays: %w", called(m), err)
}

// await tells how a removal goes, until it is over.
func (s servers) await(ctx context.Context, h *server.Server, m server.Member, tell func(api.RaftRemoved) error) error {
	look := time.NewTicker(removalLook)
	defer look.Stop()
	said := api.RaftRemoved{}
	for {
		now := api.RaftRemoved{ID: m.ID, Name: m.Name, State: api.RemovalAsked}
		conf := h.Members()
		switch {
		case s.agent.storage.part.Gone(ctx, h, m.ID):
			now.State = api.RemovalGone
		case !slices.Contains(slices.Concat(conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners()), m.ID):
			now.State = api.RemovalLeft
		case !slices.Contains(control.Leaving(h.View()), m.ID) && h.State().Leader != 0 && said.State == api.RemovalAsked:
			if retired, _ := raft.RetiredIn(h.View(), m.ID); !retired {
				return refuse(api.ErrRefused, "%s stays: somebody took the wish back that it be removed", called(m))
			}
		default:
			if st, err := s.agent.storage.part.Standing(ctx); err == nil {
				now.Why = st.Lacks
			}
		}
		if now != said {
			if err := tell(now); err != nil {
				return err
			}
			said = now
		}
		if now.State == api.RemovalGone {
			return nil
		}
		select {
		case <-look.C:
		case <-h.Changed():
		case <-h.Done():
			if s.agent.storage.part.Gone(ctx, h, m.ID) {
				continue // it ended for that
			}
			return refuse(api.ErrRefused, "the server of this agent ended: ask another how the removal of %s goes%s", called(m), s.others())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Recover implements api.Servers.
func (s servers) Recover(ctx context.Context, cluster string) (string, error) {
	var lost formation.ClusterID
	if cluster != "" {
		var err error
		if lost, err = formation.ParseClusterID(cluster); err != nil {
			return "", refuse(api.ErrInvalid, "%q is no id of a cluster: want 16 hexadecimal digits, as `fairlead raft status` shows them", cluster)
		}
	}
	st := s.agent.storage
	if st.part == nil {
		return "", refuse(api.ErrRefused, "this agent forms no cluster: %s", st.why)
	}
	given, err := st.part.Recover(ctx, lost)
	switch {
	case err == nil:
		return given.String(), nil
	case errors.Is(err, formation.ErrRefused), errors.Is(err, server.ErrWaitsForNone):
		return "", &api.Refusal{Kind: api.ErrRefused, Err: err}
	}
	return "", err
}

// followTimeout bounds the wait for servers that were refused until now.
const followTimeout = 30 * time.Second

// Follow implements api.Servers.
func (s servers) Follow(ctx context.Context, cluster string) (api.RaftFollowed, error) {
	id, err := formation.ParseClusterID(cluster)
	if err != nil {
		return api.RaftFollowed{}, refuse(api.ErrInvalid, "%q is no id of a cluster: want 16 hexadecimal digits, as `fairlead raft status` shows them", cluster)
	}
	short, cancel := context.WithTimeout(ctx, followTimeout)
	defer cancel()
	got, err := s.agent.storage.follower.accept(short, uint64(id))
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return api.RaftFollowed{}, ctx.Err()
	case errors.Is(err, system.ErrNotRefused), short.Err() != nil:
		return api.RaftFollowed{}, &api.Refusal{Kind: api.ErrRefused, Err: err}
	default:
		return api.RaftFollowed{}, err
	}
	s.agent.log.Warn("servers are followed that were refused, on an operator's word", "cluster", cluster, "revision", got.Revision, "was_revision", got.Was.Revision(), "kept_as", got.KeptAs)
	out := api.RaftFollowed{Revision: got.Revision, Keys: got.Keys, WasRevision: got.Was.Revision(), KeptAs: got.KeptAs}
	if was := got.Was.Cluster(); was != 0 {
		out.WasCluster = formation.ClusterID(was).String()
	}
	return out, nil
}

// Depart implements api.Servers.
func (s servers) Depart(ctx context.Context, force bool) (string, error) {
	st := s.agent.storage
	h := st.server()
	switch {
	case h == nil || st.port == nil || s.agent.leaver.leaving():
		return "", nil
	case len(h.Identity().Set) > 0:
		return "it stays one of the static set of servers (raft.peers), which counts on it", nil
	case h.Err() != nil:
		return s.anyway(force, "its server failed and cannot ask for its removal: do that elsewhere (`fairlead raft remove %s`)", s.agent.config().Node.Name)
	}
	conf := h.Members()
	voters := slices.Concat(conf.GetVoters(), conf.GetVotersOutgoing())
	switch {
	case !slices.Contains(voters, h.ID()) && !slices.Contains(conf.GetLearners(), h.ID()):
		return "", nil // nobody took it in
	case len(voters) == 1 && !s.agent.seen():
		return "", nil // there is nobody who would lack it
	}
	if err := s.fresh(ctx, h); err != nil {
		if ctx.Err() != nil {
			return "", err
		}
		return s.anyway(force, "its removal was not possible: %w", err)
	}
	self := server.Member{ID: h.ID(), Record: server.Record{Name: s.agent.config().Node.Name}}
	if err := s.mayLeave(h, self, force); err != nil {
		return s.anyway(force && errors.Is(err, control.ErrLast), "%w", err)
	}
	return s.depart(ctx, h, self, force)
}

// anyway lets the node leave as a server, by force, or refuses.
func (s servers) anyway(force bool, format string, args ...any) (string, error) {
	err := fmt.Errorf(format, args...)
	if force {
		return "it stays one of the servers of the store: " + err.Error(), nil
	}
	return "", refuse(api.ErrRefused, "the node stays: %w; `fairlead leave --force` leaves all the same", err)
}

// depart has this node's server removed, or takes that back.
func (s servers) depart(ctx context.Context, h *server.Server, self server.Member, force bool) (string, error) {
	part := s.agent.storage.part
	part.Depart(true)
	err := control.AskToLeave(ctx, h, self.ID, force)
	if err == nil {
		err = s.await(ctx, h, self, func(r api.RaftRemoved) error {
			s.agent.log.Info("leaving the servers of the store", "waits_for", r.Why)
			return nil
		})
	}
	if err == nil {
		part.Retire(ctx)
		return "it is no server of the store any more", nil
	}
	part.Depart(false)
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	if undone := control.CancelLeaving(after, h, self.ID); undone != nil {
		s.agent.log.Warn("this node stays, and its removal from the servers of the store was asked for: take that back", "with", "fairlead raft remove --cancel "+self.Name, "error", undone)
	}
	return "", err
}
