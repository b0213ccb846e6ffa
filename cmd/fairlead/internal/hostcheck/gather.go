package hostcheck

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"
)

// Bounds of what Gather does, so that it ends soon whatever the host is like.
const (
	dialTime    = time.Second            // for a peer to answer
	toolTime    = time.Second            // for iptables-save and the like
	fsyncTime   = 400 * time.Millisecond // for all writes together
	fsyncWrites = 100
	fsyncBytes  = 4096
)

// Gather looks at the host. It opens each port for a moment, connects to the peers,
// and writes to a file without a name in the data directory; of all that nothing
// stays. Planes are left to the caller. It returns soon after ctx ends.
func Gather(ctx context.Context, c Config, a Agent) Facts {
	f := Facts{Config: c, Agent: a, Kernel: gatherKernel(), Files: fileLimit()}
	f.Network = Network{
		Addresses: addresses(), Routes: routes(),
		Forward: sysctl("net/ipv4/ip_forward"), Localnet: sysctl("net/ipv4/conf/all/route_localnet"), RPFilter: sysctl("net/ipv4/conf/all/rp_filter"),
		Clock: kernelClock(),
	}
	f.Storage.Dir = directory(c.DataDir)
	var looking sync.WaitGroup
	looking.Go(func() { f.Netfilter, f.Leftovers = gatherRules(ctx) })
	looking.Go(func() { f.Network.Ports = tryPorts(c) })
	looking.Go(func() { f.Network.Peers = tryPeers(ctx, c, f.Network) })
	looking.Go(func() { f.Storage.Fsync = measureFsync(ctx, c.DataDir, f.Storage.Dir) })
	looking.Wait()
	f.Leftovers.Pins = pinned(f.Kernel.BPFFS)
	return f
}

// knownOr makes a Known of a value and the error of reading it.
func knownOr[T any](v T, err error) Known[T] {
	switch {
	case err == nil:
		return Known[T]{Value: v}
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return Known[T]{Why: needsRoot}
	}
	return Known[T]{Why: err.Error()}
}
