package route

import (
	"github.com/fairlead/fairlead/dataplane"
)

// DefaultZone is the last part of a service's longest name.
const DefaultZone = "mesh.internal"

// Service is what leads requests to one target.
type Service[T any] struct {
	Key    dataplane.Key
	Hosts  []string          // further hosts: names, IP addresses, or *.example.com
	Routes []dataplane.Route // requests that lead here beside those to the hosts
	Target T
}

// Verdict is what a look-up found.
type Verdict uint8

// The verdicts.
const (
	NoHost  Verdict = iota // nobody serves the host
	NoRoute                // the host is served, but not this request
	Found
)

// Request is what a look-up goes by.
type Request struct {
	Host   string // canonical: see Canonical
	Path   string // decoded: see Path
	Method string
	Header map[string][]string // under canonical names, as http.Header has them
}

// Conflict is a part of a service that another one has.
type Conflict struct {
	Host   string // "" is any host
	Prefix string
	Winner dataplane.Key
}

// Table leads requests to targets. It is immutable and safe to share.
type Table[T any] struct {
	zone string
}

// New returns an empty table. Services are also known as NAME.NAMESPACE.zone;
// an empty zone is DefaultZone.
func New[T any](zone string) *Table[T] {
	if zone == "" {
		zone = DefaultZone
	}
	return &Table[T]{zone: zone}
}

// Lookup returns the target of a request.
func (t *Table[T]) Lookup(r Request) (target T, v Verdict) {
	return target, NoHost
}

// Conflicts returns what the service of a key asked for and another one has, in
// a fixed order.
func (t *Table[T]) Conflicts(k dataplane.Key) []Conflict { return nil }

// Edit starts a copy of the table, which stays as it is.
func (t *Table[T]) Edit() *Editor[T] { return &Editor[T]{next: t} }

// Editor makes the next table out of one. Its cost is that of the edits.
type Editor[T any] struct {
	next *Table[T]
}

// Set puts s in place of the service of its key. A service that is wrong by
// itself is refused with an error that wraps ErrInvalid, and what was there
// before stays.
func (e *Editor[T]) Set(s Service[T]) error { return nil }

// Delete removes a service.
func (e *Editor[T]) Delete(k dataplane.Key) {}

// Done returns the table, and the services whose Conflicts are not what they
// were, in the order of their keys: a change of one service may give a host to
// another.
func (e *Editor[T]) Done() (*Table[T], []dataplane.Key) { return e.next, nil }
