package route

import "errors"

// ErrInvalid is wrapped by errors about hosts, paths and routes that cannot be.
var ErrInvalid = errors.New("route: invalid")

// Canonical returns the form in which the host of a request's authority
// (host[:port] of the Host header, :authority or an absolute target) is
// compared: lower case, without port, without one dot at the end, IPv6
// addresses without brackets. It allocates only if that is another string.
// What is no plain host or address is refused with ErrInvalid.
func Canonical(authority string) (string, error) { return authority, nil }

// ConfigHost is Canonical for a host from a configuration: names may hold other
// letters than ASCII (they become A-labels), IPv6 addresses may come without
// brackets, "*.example.com" stands for every name below, and a port is
// refused.
func ConfigHost(host string) (string, error) { return host, nil }
