package agent

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/view"
	"github.com/fairlead/fairlead/dataplane"
)

// claim is what only one service can have.
type claim struct {
	front netip.AddrPort
	proto model.Protocol
	host  string // then front is zero
}

func (c claim) kind() string {
	if c.host != "" {
		return "host"
	}
	return "frontend"
}

func (c claim) String() string {
	if c.host != "" {
		return c.host
	}
	return fmt.Sprintf("%v/%v", c.front, c.proto)
}

// claimsOf lists what a service wants for itself on this node, each once.
func claimsOf(s *view.Service) []claim {
	var out []claim
	add := func(c claim) {
		if !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	for _, p := range s.Definition.Ports {
		if s.Definition.VIP.IsValid() {
			add(claim{front: netip.AddrPortFrom(s.Definition.VIP, p.Port), proto: p.Protocol})
		}
		for _, at := range s.Definition.Intercept {
			add(claim{front: at, proto: p.Protocol})
		}
	}
	for _, h := range s.Definition.Hosts {
		add(claim{host: strings.TrimSuffix(strings.ToLower(h), ".")})
	}
	return out
}

// claims is who has what more than one service wants. The data planes decide, each
// for itself: whoever had it first keeps it, and where nobody had it, the one that
// was registered first gets it.
type claims map[claim]*view.Service

// claims settles who has what in a view.
func (c catalogue) claims(v *view.View) claims {
	refused := c.agent.planes.withoutFrontend()
	held := make(claims)
	for s := range v.Services() {
		for _, want := range claimsOf(s) {
			if has := held[want]; has == nil || precedes(s, has, refused) {
				held[want] = s
			}
		}
	}
	for s := range v.Services() { // a name that is made of a service's key is its own
		names := []string{s.Key.Name + "." + s.Key.Namespace}
		if s.Key.Namespace == model.DefaultNamespace {
			names = append(names, s.Key.Name)
		}
		for _, name := range names {
			if _, wanted := held[claim{host: name}]; wanted {
				held[claim{host: name}] = s
			}
		}
	}
	return held
}

// precedes says which of two services has what both want.
func precedes(s, o *view.Service, refused map[dataplane.Key]bool) bool {
	out := func(s *view.Service) int {
		if refused[dataplane.Key(s.Key)] {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(out(s), out(o)), cmp.Compare(s.Since, o.Since), s.Key.Compare(o.Key)) < 0
}

// conflicts lists what a service wants and another one has.
func (held claims) conflicts(v *view.View, s *view.Service) []api.Conflict {
	var out []api.Conflict
	for _, want := range claimsOf(s) {
		has := held[want]
		if has == nil || has.Key == s.Key {
			continue
		}
		one := api.Conflict{Kind: want.kind(), What: want.String(), Holder: has.Key}
		if has.DefinedBy != 0 {
			one.Node = nodeName(v, has.DefinedBy)
		}
		if has.Since != 0 {
			one.Since = time.UnixMilli(has.Since)
		}
		one.Remedy = fmt.Sprintf("give %s another address, or deregister %s", s.Key, has.Key)
		if want.host != "" {
			one.Remedy = fmt.Sprintf("take the host from %s, or from %s", s.Key, has.Key)
		}
		out = append(out, one)
	}
	return out
}

// withoutFrontend lists services that a data plane here refuses, as another one
// has their frontend.
func (p *planes) withoutFrontend() map[dataplane.Key]bool {
	out := make(map[dataplane.Key]bool)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.loops {
		for _, st := range l.Status().Statuses {
			if st.Reason == dataplane.ReasonDuplicateFrontend {
				out[st.Service] = true
			}
		}
	}
	return out
}
