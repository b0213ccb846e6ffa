package conf

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/l7/internal/route"
)

// services reads the list of services.
func (d document) services(n *yaml.Node) {
	d.l.cfg.Services, d.l.cfg.static = nil, true
	clear(d.l.cfg.places)
	d.list(n, keyServices, func(path string, item *yaml.Node) {
		svc, ok := d.service(path, item)
		if !ok {
			return
		}
		if place, twice := d.l.cfg.places[svc.Key]; twice {
			d.l.failf(d.at(item), "service %s is written twice, first at %s: give one another name, or join them", svc.Key, place)
			return
		}
		d.l.cfg.places[svc.Key] = d.at(item)
		d.l.cfg.Services = append(d.l.cfg.Services, svc)
	})
}

// servicesText reads the list from a variable or a flag.
func (l *loader) servicesText(text, origin string) {
	d := document{name: origin, text: true, l: l}
	l.cfg.Services, l.cfg.static = nil, true
	if root := d.parse([]byte(text)); root != nil {
		d.services(root)
	}
}

func (d document) service(path string, n *yaml.Node) (*dataplane.Service, bool) {
	before := len(d.l.errs)
	svc := &dataplane.Service{DrainTime: defaultDrain}
	var endpoints []dataplane.Endpoint
	named := false
	d.mapping(n, path, []string{"name", "hosts", "routes", "balance", "drain_time", "endpoints"}, func(key string, value *yaml.Node) {
		switch key {
		case "name":
			named = true
			k, err := dataplane.ParseKey(d.text1(path+".name", value))
			if err != nil {
				d.l.failf(d.at(value), "%s.name is %q: want NAME or NAMESPACE/NAME", path, value.Value)
			}
			svc.Key = k
		case "hosts":
			svc.Hosts = d.texts(path+".hosts", value)
		case "routes":
			d.list(value, path+".routes", func(path string, item *yaml.Node) { svc.Routes = append(svc.Routes, d.route(path, item)) })
		case "balance":
			svc.Balance = d.balance(path+".balance", value)
		case "drain_time":
			svc.DrainTime = d.duration(path+".drain_time", value)
		case "endpoints":
			d.list(value, path+".endpoints", func(path string, item *yaml.Node) {
				e := d.endpoint(path, item)
				if slices.ContainsFunc(endpoints, func(o dataplane.Endpoint) bool { return o.Addr == e.Addr && e.Addr.IsValid() }) {
					d.l.failf(d.at(item), "%s: %v is listed twice: remove one, or give one a weight", path, e.Addr)
				}
				endpoints = append(endpoints, e)
			})
		}
	})
	if !named && len(d.l.errs) == before {
		d.l.failf(d.at(n), "%s has no name: add one, requests reach the service at it", path)
	}
	if len(d.l.errs) > before {
		return nil, false
	}
	svc.Endpoints = dataplane.NewEndpoints(endpoints...)
	if p := svc.Check(); p != nil {
		d.l.failf(d.at(n), "service %s: %s", svc.Key, p.Message)
		return nil, false
	}
	return svc, true
}

// defaultDrain is how long connections to an endpoint that was taken out go on.
const defaultDrain = 30 * time.Second

func (d document) route(path string, n *yaml.Node) dataplane.Route {
	var r dataplane.Route
	d.mapping(n, path, []string{"host", "path_prefix", "methods", "headers"}, func(key string, value *yaml.Node) {
		switch key {
		case "host":
			r.Host = d.text1(path+".host", value)
		case "path_prefix":
			r.PathPrefix = d.text1(path+".path_prefix", value)
		case "methods":
			r.Methods = d.texts(path+".methods", value)
		case "headers":
			r.Headers = map[string]string{}
			if value.Kind != yaml.MappingNode {
				d.l.failf(d.at(value), "%s.headers: want NAME: VALUE lines", path)
				return
			}
			for i := 0; i+1 < len(value.Content); i += 2 {
				name := value.Content[i].Value
				r.Headers[name] = d.text1(path+".headers."+name, value.Content[i+1])
			}
		}
	})
	return r
}

// endpoint is "IP:PORT", or more than that. Its id comes from the address, so
// that it is the same one after a reload.
func (d document) endpoint(path string, n *yaml.Node) dataplane.Endpoint {
	e := dataplane.Endpoint{Weight: 1}
	var address string
	if n.Kind == yaml.ScalarNode {
		address = d.text1(path, n)
	} else {
		d.mapping(n, path, []string{"address", "weight", "name", "zone"}, func(key string, value *yaml.Node) {
			switch key {
			case "address":
				address = d.text1(path+".address", value)
			case "weight":
				w, err := strconv.ParseUint(value.Value, 10, 16)
				if err != nil {
					d.l.failf(d.at(value), "%s.weight is %q: want a number from 0 to 65535", path, value.Value)
				}
				e.Weight = uint16(w)
			case "name":
				e.Name = d.text1(path+".name", value)
			case "zone":
				e.Zone = d.text1(path+".zone", value)
			}
		})
	}
	a, err := netip.ParseAddrPort(strings.Replace(address, "localhost:", "127.0.0.1:", 1))
	if err != nil {
		d.l.failf(d.at(n), "%s is %q: want IP:PORT, such as 127.0.0.1:9001; names are not resolved", path, address)
	}
	e.Addr = netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
	if e.Name == "" {
		e.Name = address
	}
	h := fnv.New64a()
	fmt.Fprint(h, e.Addr)
	e.ID = max(1, h.Sum64())
	return e
}

func (d document) balance(path string, n *yaml.Node) dataplane.Balance {
	known := []dataplane.Balance{dataplane.BalanceDefault, dataplane.BalanceRandom, dataplane.BalanceRoundRobin, dataplane.BalanceLeastLoad, dataplane.BalanceHash}
	var words []string
	for _, b := range known {
		if b.String() == n.Value {
			return b
		}
		words = append(words, b.String())
	}
	d.l.failf(d.at(n), "%s is %q: want one of %s", path, n.Value, strings.Join(words, ", "))
	return 0
}

func (d document) duration(path string, n *yaml.Node) time.Duration {
	t, err := time.ParseDuration(n.Value)
	if err != nil || t < 0 {
		d.l.failf(d.at(n), "%s is %q: want a duration such as 30s", path, n.Value)
	}
	return t
}

func (d document) list(n *yaml.Node, path string, visit func(path string, item *yaml.Node)) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
	case n.Kind != yaml.SequenceNode:
		d.l.failf(d.at(n), "%s: want a list", path)
	default:
		for i, item := range n.Content {
			visit(fmt.Sprintf("%s[%d]", path, i), item)
		}
	}
}

func (d document) texts(path string, n *yaml.Node) []string {
	var out []string
	d.list(n, path, func(path string, item *yaml.Node) { out = append(out, d.text1(path, item)) })
	return out
}

// text1 is one text. A number without quotes is taken as it is written.
func (d document) text1(path string, n *yaml.Node) string {
	v, ok := scalar(n)
	if !ok {
		d.l.failf(d.at(n), "%s: want one text", path)
		return ""
	}
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return n.Value
}

// checkServices finds services whose routes are wrong, or those of another one.
// An agent's services may clash and the proxy goes on; who writes them all down
// wants to hear of it.
func (l *loader) checkServices() {
	edit := route.New[struct{}](l.cfg.Settings.Zone).Edit()
	for _, svc := range l.cfg.Services {
		if err := edit.Set(route.Service[struct{}]{Key: svc.Key, Hosts: svc.Hosts, Routes: svc.Routes}); err != nil {
			l.errs = append(l.errs, fmt.Errorf("%s: %w", l.cfg.places[svc.Key], err))
		}
	}
	table, _ := edit.Done()
	for _, svc := range l.cfg.Services {
		for _, c := range table.Conflicts(svc.Key) {
			host := c.Host
			if host == route.AnyHost {
				host = "any host"
			}
			l.failf(l.cfg.places[svc.Key], "service %s: %s%s leads to service %s of %s already: give one of both another host or route", svc.Key, host, c.Prefix, c.Winner, l.cfg.places[c.Winner])
		}
	}
}
