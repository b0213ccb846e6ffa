package route

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
)

// service is a Service that was checked.
type service[T any] struct {
	claims []claim[T]
}

// claim is a rule on a host.
type claim[T any] struct {
	host string
	rule rule[T]
}

// hosts lists the hosts of the claims, each once, sorted.
func (s *service[T]) hosts() []string {
	var names []string
	for _, c := range s.claims {
		names = append(names, c.host)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func compile[T any](s Service[T], zone string) (*service[T], error) {
	var out service[T]
	seen := make(map[string]bool)
	add := func(host string, r rule[T]) {
		r.key, r.since, r.target = s.Key, s.Since, s.Target
		r.id = r.text()
		if at := host + "\x00" + r.id; !seen[at] {
			seen[at] = true
			out.claims = append(out.claims, claim[T]{host, r})
		}
	}
	for _, name := range ownNames(s.Key, zone) {
		add(name, rule[T]{own: true})
	}
	written := make(map[string]string, len(s.Hosts))
	for _, given := range s.Hosts {
		host, err := ConfigHost(given)
		if err != nil {
			return nil, fmt.Errorf("service %s: %w", s.Key, err)
		}
		if first, twice := written[host]; twice {
			return nil, fmt.Errorf("service %s: %w host %q: it is the same as %q: remove one", s.Key, ErrInvalid, given, first)
		}
		written[host] = given
		add(host, rule[T]{})
	}
	for i, given := range s.Routes {
		host, r, err := compileRoute[T](given)
		if err != nil {
			return nil, fmt.Errorf("service %s, route %d: %w", s.Key, i+1, err)
		}
		add(host, r)
	}
	if len(out.claims) == 0 {
		return nil, fmt.Errorf("service %s: %w name: it makes no host, and there are no others: give the service hosts", s.Key, ErrInvalid)
	}
	return &out, nil
}

// ownNames are the hosts that the key makes. A key that is no name of a host
// makes none.
func ownNames(k dataplane.Key, zone string) []string {
	long := k.Name + "." + k.Namespace
	names := []string{long, long + "." + zone}
	if k.Namespace == "default" {
		names = append(names, k.Name)
	}
	for i, n := range names {
		host, err := ConfigHost(n)
		if err != nil || strings.Contains(host, "*") || strings.Contains(host, ":") {
			return nil
		}
		names[i] = host
	}
	return names
}

func compileRoute[T any](given dataplane.Route) (host string, r rule[T], err error) {
	host = AnyHost
	if given.Host != "" {
		if host, err = ConfigHost(given.Host); err != nil {
			return "", r, err
		}
	}
	if r.prefix, err = Prefix(given.PathPrefix); err != nil {
		return "", r, err
	}
	var only constraint
	for _, name := range slices.Sorted(maps.Keys(given.Headers)) {
		canonical, ok := headerName(name)
		if !ok {
			return "", r, fmt.Errorf("%w header %q: no name of a header field", ErrInvalid, name)
		}
		if canonical == "Host" {
			return "", r, fmt.Errorf("%w header %q: match it by the route's host", ErrInvalid, name)
		}
		only.headers = append(only.headers, header{canonical, given.Headers[name]})
	}
	slices.SortFunc(only.headers, func(a, b header) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.value, b.value)) })
	only.headers = slices.Compact(only.headers)
	for _, m := range given.Methods {
		if _, ok := headerName(m); !ok || m != strings.ToUpper(m) {
			return "", r, fmt.Errorf("%w method %q: want a word such as GET, in upper case", ErrInvalid, m)
		}
		only.methods = append(only.methods, m)
	}
	slices.Sort(only.methods)
	only.methods = slices.Compact(only.methods)
	if only.count() > 0 {
		r.only = &only
	}
	return host, r, nil
}

// text writes what a rule matches in a form that tells any two apart.
func (r *rule[T]) text() string {
	if r.only == nil {
		return r.prefix
	}
	return fmt.Sprintf("%s\x00%q%q", r.prefix, r.only.methods, r.only.headers)
}

// headerName returns the canonical form of a field name, which http.Header uses
// as well; ok is false if it is no token (RFC 9110, section 5.6.2).
func headerName(name string) (canonical string, ok bool) {
	b := []byte(name)
	upper := true
	for i, c := range b {
		switch {
		case 'a' <= c && c <= 'z':
			if upper {
				b[i] = c - 'a' + 'A'
			}
		case 'A' <= c && c <= 'Z':
			if !upper {
				b[i] = c - 'A' + 'a'
			}
		case '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return "", false
		}
		upper = c == '-'
	}
	return string(b), len(b) > 0
}
