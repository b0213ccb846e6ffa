package config

import (
	"encoding"
	"net/netip"
	"reflect"
	"time"
)

// defaulter is a list entry whose absent keys have values other than zero.
type defaulter interface{ setDefaults() }

// deriver is a list entry with defaults that depend on its other keys.
type deriver interface{ derive() }

// newEntry returns a settable list entry with its defaults.
func newEntry(t reflect.Type) reflect.Value {
	p := reflect.New(t)
	if d, ok := p.Interface().(defaulter); ok {
		d.setDefaults()
	}
	return p.Elem()
}

// textTarget returns v's parser if it reads its value from text by itself.
func textTarget(v reflect.Value) (encoding.TextUnmarshaler, bool) {
	u, ok := v.Addr().Interface().(encoding.TextUnmarshaler)
	return u, ok
}

func isTextType(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// isStructList says whether t is a list of entries with keys of their own.
func isStructList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && !isTextType(t.Elem())
}

// isScalarList says whether t is a list that a comma-separated text can hold.
func isScalarList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && !isTextType(t) && !isStructList(t)
}

// typeName is the word for t in the reference tables.
func typeName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[netip.AddrPort]():
		return "ip:port"
	case reflect.TypeFor[netip.Addr]():
		return "ip"
	case reflect.TypeFor[netip.Prefix]():
		return "prefix"
	case reflect.TypeFor[Listen]():
		return "ip:port, off"
	case reflect.TypeFor[Advertise]():
		return "ip, ip:port"
	case reflect.TypeFor[Providers]():
		return "list of names"
	case reflect.TypeFor[TCPTarget]():
		return "true, ip:port"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "bool"
	case reflect.Int:
		return "number"
	case reflect.Uint16:
		return "port"
	case reflect.Slice:
		return "list of " + typeName(t.Elem())
	case reflect.Struct:
		return "entries"
	case reflect.Map:
		return "map"
	default:
		return "text"
	}
}

// expected says in an error what may be written for t.
func expected(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "expected a duration with its unit, such as 100ms, 2s or 1m"
	case reflect.TypeFor[netip.AddrPort]():
		return "expected ip:port such as 127.0.0.1:7400 or [::1]:7400"
	case reflect.TypeFor[netip.Addr]():
		return "expected an IP address such as 10.9.0.1"
	case reflect.TypeFor[netip.Prefix]():
		return "expected a prefix such as 10.200.0.0/16"
	case reflect.TypeFor[Listen]():
		return "expected ip:port such as 127.0.0.1:7402, or off"
	case reflect.TypeFor[Advertise]():
		return "expected an IP address such as 10.9.0.1, with or without a port"
	case reflect.TypeFor[Providers]():
		return "expected provider names such as auto,l7"
	case reflect.TypeFor[TCPTarget]():
		return "expected true, or ip:port such as 127.0.0.1:9001"
	case reflect.TypeFor[GRPCCheck]():
		return "expected the name of a service such as grpc.health.v1.Health, or empty text for the whole server"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "expected true or false"
	case reflect.Int:
		return "expected a whole number"
	case reflect.Uint16:
		return "expected a port from 0 to 65535"
	case reflect.Slice:
		return "expected a list"
	case reflect.Struct, reflect.Map:
		return "expected keys with values (name: value)"
	default:
		return "expected text"
	}
}
