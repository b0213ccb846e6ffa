package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/identity"
	"github.com/fairlead/fairlead/core/raft/transport"
)

// startPort makes the port where agents reach this one, which serves nobody yet.
func (a *Agent) startPort(c *cleanups, l net.Listener) error {
	cfg, st := a.config(), a.storage
	if cfg.Cluster.SecretFile == "" {
		return nil
	}
	secrets, err := a.readSecrets()
	if err != nil {
		return err
	}
	self := a.members.Snapshot().Self
	if st.keeper, err = identity.NewKeeper(cfg.Cluster.Name, identity.Node{ID: self.ID.String(), Name: self.Name}, secrets, a.opts.Now); err != nil {
		return fmt.Errorf("agent: cluster.secret_file: %w", err)
	}
	if l == nil {
		return nil
	}
	st.port, err = transport.NewPort(transport.PortConfig{
		Listener: l, Keeper: st.keeper, Limits: portLimits(cfg), Log: a.log.With("part", "port"), Metrics: a.opts.Metrics,
	})
	if err != nil {
		return err
	}
	c.add(func(context.Context) { st.port.Stop() })
	return nil
}

func (a *Agent) readSecrets() ([]identity.Secret, error) {
	secrets, warnings, err := identity.ReadFile(a.config().Cluster.SecretFile)
	if err != nil {
		return nil, fmt.Errorf("agent: cluster.secret_file: %w", err)
	}
	for _, w := range warnings {
		a.log.Warn("cluster.secret_file can be used by others", "warning", w)
	}
	return secrets, nil
}

func portLimits(cfg *config.Config) transport.Limits {
	return transport.Limits{FrameBytes: cfg.RPC.MaxFrameBytes, Handshakes: cfg.RPC.MaxHandshakes, QueueBytes: cfg.RPC.MaxQueueBytes}
}

// reread takes the secrets of the file as they are now: those that were added are
// believed, those that were removed are not any more.
func (a *Agent) rereadSecrets() error {
	st := a.storage
	if st.keeper == nil {
		return nil
	}
	secrets, err := a.readSecrets()
	if err != nil {
		return err
	}
	if err := st.keeper.SetSecrets(secrets); err != nil {
		return err
	}
	a.log.Info("the cluster's secrets were read again", "secrets", len(secrets))
	if st.port != nil {
		st.port.Recheck()
	}
	if st.part != nil {
		st.part.Recheck()
	}
	return nil
}

// rpcAddress is where the other agents reach the port: as raft.peers has it, or
// the address that gossip tells with the port that was bound.
func (a *Agent) rpcAddress(l net.Listener) string {
	cfg := a.config()
	for _, p := range cfg.Raft.Peers {
		if p.Name == cfg.Node.Name {
			return p.Addr.String()
		}
	}
	if l == nil {
		return ""
	}
	return a.reached(l).String()
}

// clientURLs are where clients reach the API, as far as this node can know.
func (a *Agent) clientURLs(l net.Listener) []string {
	if l == nil {
		return nil
	}
	scheme := "http"
	if a.config().API.TLS != (config.APITLS{}) {
		scheme = "https"
	}
	return []string{scheme + "://" + a.reached(l).String()}
}

// reached is a listener's address; one of all addresses becomes what gossip tells.
func (a *Agent) reached(l net.Listener) netip.AddrPort {
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err == nil && at.Addr().IsUnspecified() {
		at = netip.AddrPortFrom(a.members.Snapshot().Self.Addr.Addr(), at.Port())
	}
	return at
}
