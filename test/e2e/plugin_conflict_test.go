package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestPluginConflicts: a service whose frontend another has, and one whose
// instance stands at a frontend, are refused by themselves: each is told by name
// with reason and remedy, and the services beside them are served.
func TestPluginConflicts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, services string
		elsewhere      string // services of another node: what one node registers, it checks
		refused        string // the service
		reason         string
		message        []string
		served         uint64
	}{
		{
			"duplicate frontend",
			`[{"name":"web","port":80,"vip":"10.200.0.10","instances":[{"id":"web-1","address":"127.0.0.1:9001"}]},
			  {"name":"twin","port":80,"vip":"10.200.0.11","instances":[{"id":"twin-1","address":"127.0.0.1:9002"}]}]`,
			`[{"name":"zoo","port":80,"vip":"10.200.0.11","instances":[{"id":"zoo-1","address":"10.77.0.2:9003"}]}]`,
			"default/zoo", "duplicate-frontend",
			[]string{"10.200.0.11:80", "default/twin", "another address"},
			2,
		},
		{
			"an instance at a frontend",
			`[{"name":"web","port":80,"vip":"10.200.0.10","instances":[{"id":"web-1","address":"127.0.0.1:9001"}]},
			  {"name":"round","port":80,"vip":"10.200.0.11","intercept":["127.0.0.1:8001"],"instances":[{"id":"round-1","address":"127.0.0.1:8001"}]}]`,
			"",
			"default/round", "loop",
			[]string{"127.0.0.1:8001"},
			1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, 2)
			a, other := f.agents[0], f.agents[1]
			a.hosts("fake")
			a.args = append(a.args, "--services", test.services)
			a.install("fake", "fake")
			a.start()
			socket := a.socketOf(a.ready("fake", 1))
			// The service that was registered first wins.
			if test.elsewhere != "" {
				other.args = []string{"--dataplane", "off", "--services", test.elsewhere, "--gossip.profile", "local", "--api.listen", "off"}
				other.start()
			}
			a.eventually(5*time.Second, "the others are served", func() error {
				p, err := planeAt(socket)
				if err == nil && p.services != test.served {
					err = fmt.Errorf("it has %d services, want %d", p.services, test.served)
				}
				return err
			})
			a.eventually(5*time.Second, "the agent tells of the one that is refused", func() error {
				p, err := a.plugin("fake")
				if err != nil {
					return err
				}
				if p.Told == nil || len(p.Told.Troubles) != 1 {
					return fmt.Errorf("told %+v", p.Told)
				}
				trouble := p.Told.Troubles[0]
				if trouble.Service != test.refused || trouble.Status != "REJECTED" || trouble.Reason != test.reason {
					return fmt.Errorf("told %+v", trouble)
				}
				return nil
			})
			a.eventually(5*time.Second, "it is in the log", func() error {
				return a.printed(append([]string{`"WARN"`, test.refused, test.reason}, test.message...)...)
			})
			if output, err := a.run("plugin", "list"); err != nil {
				t.Errorf("%v: %s", err, output)
			} else {
				t.Logf("\n%s", output)
			}
		})
	}
}
