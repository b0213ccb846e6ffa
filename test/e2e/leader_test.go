package e2e

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/test/certs"
	"github.com/fairlead/fairlead/test/scale"
)

// Where the built-in services are, by the default of vip_pools.
const (
	vipOfLeader  = "10.200.255.254:7402"
	vipOfServers = "10.200.255.253:7402"
)

// ledCluster is three servers whose API is for other hosts, and a host with a plane.
type ledCluster struct {
	*fleet
	servers []*agent
	host    *planeHost
}

// newLedCluster starts the servers, and the host with the plane.
func newLedCluster(t *testing.T, plane string) *ledCluster {
	t.Helper()
	f := newFleet(t, 4)
	c := &ledCluster{fleet: f, servers: f.agents[:3]}
	c.host = newPlaneHost(f.agents[3], plane, nil)
	c.host.args = append(c.host.args, "--cluster.server=false")
	secret := newSecret()
	for _, a := range c.servers {
		a.join = []string{f.agents[0].node.Addr().String() + ":7400"} // one's own is ignored
		file := a.dir + ".secret"
		if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		own := certs.New(t).Files(a.name) // who dials believes any, and reads the name
		a.args = []string{
			"--cluster.secret_file", file, "--cluster.bootstrap_expect", "3", "--raft.election", electionTimeout.String(), "--gossip.profile", "local",
			"--rpc.listen", a.node.Addr().String() + ":7401", "--dns.listen", "off",
			"--api.listen", a.node.Addr().String() + ":7402", "--api.tls.cert", own.Cert, "--api.tls.key", own.Key,
		}
		a.start()
	}
	c.host.start()
	c.host.programmed(plane, 4) // two are the host's own
	c.eventually(20*time.Second, "somebody leads", func() error {
		_, err := c.leader(nil)
		return err
	})
	return c
}

// leader is the server that leads and is not the one before, as the host sees it.
func (c *ledCluster) leader(before *agent) (*agent, error) {
	members, err := c.host.members()
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		for _, a := range c.servers {
			if a.name == m.Name && m.Role == "leader" && a != before {
				return a, nil
			}
		}
	}
	return nil, fmt.Errorf("nobody leads: %+v", members)
}

// handsOver gives the leadership to another server, as clients of etcd ask for it.
func (a *agent) handsOver(to *agent) error {
	conn, err := grpc.NewClient("unix:"+a.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(a.t.Context(), 5*time.Second)
	defer cancel()
	list, err := pb.NewClusterClient(conn).MemberList(ctx, &pb.MemberListRequest{})
	if err != nil {
		return err
	}
	for _, m := range list.Members {
		if m.Name == to.name {
			_, err = pb.NewMaintenanceClient(conn).MoveLeader(ctx, &pb.MoveLeaderRequest{TargetID: m.ID})
			return err
		}
	}
	return fmt.Errorf("%s is none of %v", to.name, list.Members)
}

// turns waits until the host sees another leader, and fails the test unless every
// connect that begins a tick later reaches that one.
func (c *ledCluster) turns(load *dialer, before *agent, since time.Time) *agent {
	c.t.Helper()
	var now *agent
	var seen time.Time
	c.eventually(30*time.Second, "connects reach another leader, whom the host sees", func() error {
		is, err := c.leader(before)
		if err != nil {
			return err
		}
		if is != now { // on a busy machine there may have been one more election
			now, seen = is, time.Now()
		}
		return load.reaches(seen, now.name)
	})
	first := time.Duration(0)
	for _, one := range load.dials() {
		switch after := one.began.Sub(seen); {
		case one.began.Before(since):
		case one.name == now.name && first == 0:
			first = one.began.Sub(since)
		case after > scale.Bound(reconcile.DefaultTick, 10*reconcile.DefaultTick) && one.name != now.name:
			c.t.Errorf("a connect that began %v after the host saw that %s leads: %+v", after, now.name, one)
		}
	}
	c.t.Logf("%s leads: seen after %v, the first connect that reached it began after %v", now.name, seen.Sub(since).Round(time.Millisecond), first.Round(time.Millisecond))
	return now
}

// TestLeaderVIP: connects to the VIP of the leader reach the one that leads, after it
// was killed and after it handed over, and those to the VIP of the servers all of them.
func TestLeaderVIP(t *testing.T) {
	for _, plane := range []string{"ebpf", "iptables"} {
		t.Run(plane, func(t *testing.T) {
			t.Parallel()
			c := newLedCluster(t, plane)
			var names []string
			for _, a := range c.servers {
				names = append(names, a.name)
			}
			c.host.dials("--tls", "--to", vipOfServers, "--rate", "20").answers(c.host.agent, names...)
			load := c.host.dials("--tls", "--to", vipOfLeader, "--rate", "50")
			leader := c.turns(load, nil, time.Now())

			for range scale.N(10) {
				since := time.Now()
				leader.kill()
				old := leader
				leader = c.turns(load, old, since)
				old.start()
				c.eventually(20*time.Second, "the one before is a server again", func() error {
					_, err := old.cli("raft", "status")
					return err
				})

				for try := 1; ; try++ {
					var to *agent
					c.eventually(20*time.Second, "the leadership is handed over", func() (err error) {
						// A busy machine may have had another election.
						if leader, err = c.leader(nil); err != nil {
							return err
						}
						to = nil
						for _, a := range c.servers {
							if a != leader && (a != old || to == nil) {
								to = a
							}
						}
						since = time.Now()
						return leader.handsOver(to)
					})
					got := c.turns(load, leader, since)
					leader = got
					if got == to {
						break
					}
					if scale.Factor() >= 1 || try == 3 { // also then it may
						t.Errorf("%s leads, and not %s", got.name, to.name)
						break
					}
				}
			}
		})
	}
}
