package e2e

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// TestL7AgentKilledStandalone: a proxy that runs by itself and follows an agent
// serves on from what it was told last when that is killed, and goes on with
// what the next one says.
func TestL7AgentKilledStandalone(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 2)
	one, two := cluster.hosts[0], cluster.hosts[1]
	one.settings["listen"] = one.url(proxyPort + 1) // the agent's own is not what is tested
	for _, w := range cluster.hosts {
		w.serve()
		w.start()
	}
	cluster.eventually(30*time.Second, "all see all alive", cluster.agreed(cluster.agents...))
	// An agent that is killed before it wrote down whom it met takes itself for the
	// only one.
	cluster.eventually(10*time.Second, "the peers files name all", cluster.remembered)
	proxy := one.alone("--follow", "unix:"+one.socket())
	cluster.eventually(30*time.Second, "the proxy that follows sends to both", one.reaches("n1", "n2"))

	load := newLoad(t, one.node, webRate, one.url(proxyPort))
	for range scale.N(10) {
		load.flows(webRate / 2)
		one.kill()
		load.flows(2 * webRate)
		// Who answers late on a busy machine is left out for a moment.
		cluster.eventually(10*time.Second, "without its agent the proxy sends to both", one.reaches("n1", "n2"))
		one.start()
		cluster.eventually(30*time.Second, "the agent is back", cluster.agreed(cluster.agents...))
		// It may have to probe its own instance first.
		cluster.eventually(30*time.Second, "the agent sends to both again", func() error {
			by, err := one.endpoints("web")
			for _, e := range by {
				if !e.In {
					return fmt.Errorf("%+v", e)
				}
			}
			if err == nil && len(by) != 2 {
				return fmt.Errorf("it has %v", by)
			}
			return err
		})
	}
	// What changes after all that is seen.
	two.proc.Signal(syscall.SIGTERM)
	cluster.eventually(30*time.Second, "the proxy follows the agent again", one.reaches("n1"))
	load.faultless()
	lives(t, proxy)
}

// TestL7AgentRestarts: whether it restarts or is killed, the agent's proxy is
// the same process after it, and no client sees anything.
func TestL7AgentRestarts(t *testing.T) {
	for _, how := range []string{"kept", "alone"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			cluster := newWebs(t, 2)
			one := cluster.hosts[0]
			var proxy *netns.Process
			if how == "alone" {
				proxy = one.standalone()
			}
			cluster.start()
			life := one.ready("l7", 1)
			// An agent that is killed before it wrote down whom it met takes itself
			// for the only one.
			cluster.eventually(10*time.Second, "the peers files name all", cluster.remembered)
			load := newLoad(t, one.node, webRate, one.url(proxyPort))
			for i := range scale.N(20) {
				load.flows(webRate / 4)
				if i%2 == 0 {
					one.kill()
				} else {
					one.stopFor(20 * time.Second)
				}
				load.flows(webRate / 2)
				one.start()
				next := one.ready("l7", 1)
				if next.Kind != how || next.PID != life.PID {
					t.Fatalf("the next agent has a %s, pid %d; want %s, the one of before, %d", next.Kind, next.PID, how, life.PID)
				}
				load.flows(webRate / 2)
			}
			cluster.eventually(30*time.Second, "all see all alive", cluster.agreed(cluster.agents...))
			cluster.eventually(30*time.Second, "its proxy sends to both", one.reaches("n1", "n2"))
			answers := load.faultless()
			if proxy != nil {
				lives(t, proxy)
			}
			for _, name := range cluster.names() {
				if !answered(answers, name, 1) {
					t.Errorf("%s was sent nothing", name)
				}
			}
		})
	}
}

// answered reports whether an instance answered so many requests at least.
func answered(answers []answer, name string, most int) bool {
	n := 0
	for _, a := range answers {
		if a.from == name {
			n++
		}
	}
	return n >= most
}

// TestL7RollingRestart: the agents of all nodes restart one after the other. No
// node accuses them, their instances stay endpoints, and no client of any proxy
// sees anything.
func TestL7RollingRestart(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 3)
	cluster.start()
	load := newLoad(t, cluster.hosts[0].node, webRate, cluster.proxies()...)
	for range scale.N(10) {
		for _, w := range cluster.hosts {
			var rest []*web
			for _, o := range cluster.hosts {
				if o != w {
					rest = append(rest, o)
				}
			}
			done := cluster.witness(w, rest...)
			pid := w.ready("l7", 1).PID
			w.stopFor(25 * time.Second)
			load.flows(webRate / 2)
			w.start()
			cluster.eventually(30*time.Second, w.name+" is back", cluster.agreed(cluster.agents...))
			if is := w.ready("l7", 1).PID; is != pid {
				t.Errorf("the proxy of %s is %d, before %d", w.name, is, pid)
			}
			load.flows(webRate) // its checks have run again
			cluster.eventually(30*time.Second, w.name+" has its endpoints", w.places("web", "web-n1@n1=ready", "web-n2@n2=ready", "web-n3@n3=ready"))
			done()
			never(t, cluster.others(w.agent), w.name, "suspected", "died", "left")
		}
	}
	answers := load.faultless()
	for _, name := range cluster.names() {
		if !answered(answers, name, len(answers)/10) {
			t.Errorf("%s was sent less than a tenth of the requests", name)
		}
	}
}

// TestL7NodeLeaves: a node that stops drains and leaves. Its instance ends with
// it, and clients of the others' proxies do not see it.
func TestL7NodeLeaves(t *testing.T) {
	t.Parallel()
	cluster := newWebs(t, 3)
	cluster.start()
	load := newLoad(t, cluster.hosts[0].node, webRate, cluster.proxies()[:2]...)
	gone := cluster.hosts[2]
	for range scale.N(10) {
		load.flows(webRate / 2)
		gone.proc.Signal(syscall.SIGTERM)
		<-gone.proc.Done()
		for _, o := range cluster.hosts[:2] {
			cluster.eventually(10*time.Second, o.name+" sees it left", func() error {
				return o.sees(gone.name, model.StateLeft, gone.node.Addr())
			})
			cluster.eventually(10*time.Second, o.name+" sends nothing to it", o.reaches("n1", "n2"))
		}
		left := time.Now()
		load.flows(webRate / 2)
		// As a service manager would: what the agent took out ends after it.
		gone.run.Signal(syscall.SIGTERM)
		<-gone.run.Done()
		load.flows(webRate / 2)
		if n := load.sentTo(gone.name, left); n > 0 {
			t.Errorf("%d requests were sent to it after it had left", n)
		}
		gone.serve()
		gone.start()
		for _, o := range cluster.hosts[:2] {
			cluster.eventually(30*time.Second, o.name+" sends to it again", o.reaches(cluster.names()...))
		}
	}
	load.faultless()
	never(t, cluster.agents[:2], "", "suspected", "died")
}
