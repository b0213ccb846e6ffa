package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/fairlead/fairlead/core/api"
	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/membership"
	"github.com/fairlead/fairlead/core/metric"
	"github.com/fairlead/fairlead/core/swim"
)

// socketOff is the value of api.socket that disables it.
const socketOff = "off"

// open starts every part and leaves in c how to end it, also when it fails
// half-way. ctx bounds the choice of plugins.
func (a *Agent) open(ctx context.Context, c *cleanups) error {
	startHeap(c)
	if err := a.registerMetrics(c); err != nil {
		return err
	}
	listeners, err := a.listen(c)
	if err != nil {
		return err
	}
	if err := a.startMembership(c); err != nil {
		return err
	}
	if err := a.startServices(c); err != nil {
		return err
	}
	if err := a.startView(c); err != nil {
		return err
	}
	if err := a.startStorage(c, listeners); err != nil {
		return err
	}
	a.serve(c, listeners)
	return a.startPlugins(ctx, c)
}

func (a *Agent) registerMetrics(c *cleanups) error {
	a.metrics = newMetrics(a.opts.Version)
	all := append(a.metrics.collectors(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := metric.Register(a.opts.Metrics, all...); err != nil {
		return fmt.Errorf("agent: register metrics: %w", err)
	}
	c.add(func(context.Context) { metric.Unregister(a.opts.Metrics, all...) })
	return nil
}

// bound are the listeners that nobody answers on yet. Nil ones are off.
type bound struct {
	socket, tcp, http, rpc net.Listener
	tls                    *tls.Config // of tcp; nil: it has none
}

// listen binds what clients use, before gossip tells others of this node.
func (a *Agent) listen(c *cleanups) (bound, error) {
	cfg := a.config()
	var b bound
	var err error
	if cfg.API.Socket != "" && cfg.API.Socket != socketOff {
		if b.socket, err = api.ListenUnix(cfg.API.Socket); err != nil {
			return b, err
		}
		a.note(c, "api.socket", b.socket)
	}
	if !cfg.API.Listen.Off() {
		if cfg.API.TLS != (config.APITLS{}) {
			t := cfg.API.TLS
			if b.tls, err = api.TLSConfig(t.Cert, t.Key, t.ClientCA, a.log.With("part", "api")); err != nil {
				return b, err
			}
		}
		if b.tcp, err = api.ListenTCP("api.listen", cfg.API.Listen.String()); err != nil {
			return b, err
		}
		a.note(c, "api.listen", b.tcp)
	}
	if cfg.Cluster.SecretFile != "" && !cfg.RPC.Listen.Off() {
		if b.rpc, err = api.ListenTCP("rpc.listen", cfg.RPC.Listen.String()); err != nil {
			return b, err
		}
		a.note(c, "rpc.listen", b.rpc)
	}
	if !cfg.HTTP.Listen.Off() {
		if b.http, err = api.ListenTCP("http.listen", cfg.HTTP.Listen.String()); err != nil {
			return b, err
		}
		a.note(c, "http.listen", b.http)
	}
	return b, nil
}

// note remembers a listener for Status and closes it in the end, for the case
// that no server took it over.
func (a *Agent) note(c *cleanups, key string, l net.Listener) {
	a.listeners = append(a.listeners, api.Listener{Name: key, Address: l.Addr().String()})
	c.add(func(context.Context) { _ = l.Close() })
}

func (a *Agent) startMembership(c *cleanups) error {
	cfg := a.config()
	knobs, err := swimConfig(cfg)
	if err != nil {
		return err
	}
	a.members, err = membership.Start(membership.Config{
		Name:      cfg.Node.Name,
		Bind:      cfg.Gossip.Bind,
		Advertise: cfg.AdvertiseAddr(),
		DataDir:   a.dataDir(),
		Cluster:   cfg.Cluster.Name,
		Join:      cfg.JoinAddresses(),
		Swim:      knobs,
		Log:       a.log.With("part", "membership"),
		Metrics:   a.opts.Metrics,
		Now:       a.opts.Now,
	})
	if err != nil {
		return err
	}
	a.listeners = append([]api.Listener{{Name: "gossip.bind", Address: a.members.LocalAddr().String()}}, a.listeners...)
	a.leaver = newLeaver(departing{a.members, a}, cfg.ShutdownTimeout)
	c.add(func(context.Context) {
		if err := a.members.Close(); err != nil {
			a.log.Warn("membership did not close cleanly", "error", err)
		}
	})
	return nil
}

// swimConfig returns the protocol's knobs for gossip.profile.
func swimConfig(cfg *config.Config) (swim.Config, error) {
	var knobs swim.Config
	switch cfg.Gossip.Profile {
	case "lan":
		knobs = swim.DefaultLAN()
	case "wan":
		knobs = swim.DefaultWAN()
	case "local":
		knobs = swim.DefaultLocal()
	default:
		return knobs, fmt.Errorf("agent: gossip.profile is %q: want lan, wan or local", cfg.Gossip.Profile)
	}
	knobs.Cluster = cfg.Cluster.Name
	return knobs, nil
}

// serve starts to answer on what was bound.
func (a *Agent) serve(c *cleanups, b bound) {
	server := api.NewServer(api.Backend{
		Identity:  self{a},
		Members:   table{a},
		Events:    table{a},
		Leaver:    a.leaver,
		Settings:  settings{a},
		Services:  catalogue{a},
		Registrar: a.services,
		Traffic:   traffic{planes: a.planes},
		Source:    source{planes: a.planes},
		Plugins:   plugins{agent: a},
		Raft:      raftStatus{a.storage, a.otherServers, func() int { return a.config().Raft.Voters }},
		Servers:   servers{a},
		Store:     a.storage.front,
	}, a.log.With("part", "api"))
	if b.socket != nil {
		server.Serve(b.socket, api.AccessAll)
	}
	switch {
	case b.tcp != nil && b.tls != nil:
		server.ServeTLS(b.tcp, api.AccessRead, b.tls)
	case b.tcp != nil:
		server.Serve(b.tcp, api.AccessRead)
	}
	c.add(server.Stop)
	if b.http != nil {
		http := api.ServeHTTP(b.http, a.opts.Metrics, a.health(), a.log.With("part", "http"))
		c.add(http.Stop)
	}
}
