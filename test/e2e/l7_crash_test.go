package e2e

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// tryTimeout is the proxy's default for an answer to begin.
const tryTimeout = 250 * time.Millisecond

// failedTry is a try that brought no answer, as the proxy's log has it.
type failedTry struct {
	ended   time.Time
	backend string
	reason  string
}

var failedTryLine = regexp.MustCompile(`^time=(\S+) level=DEBUG msg="try failed" .*backend=(\S+) reason=(\S+)`)

// failedTries are those at one backend. The proxy logs at level debug.
func failedTries(t *testing.T, proxy *netns.Process, backend string) []failedTry {
	t.Helper()
	var out []failedTry
	for line := range strings.Lines(proxy.Output()) {
		m := failedTryLine.FindStringSubmatch(line)
		if m == nil || m[2] != backend {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		out = append(out, failedTry{at, m[2], m[3]})
	}
	return out
}

// TestL7NodeKilled: a node is killed with its instance and its proxy, or cut off
// from all others, and no client of a surviving proxy sees it. Where connects are
// refused, no request is sent to it 100 ms later; where packets vanish, none
// once the agent knows that it is dead.
func TestL7NodeKilled(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(map[bool]string{false: "refused", true: "vanished"}[cut], func(t *testing.T) {
			t.Parallel()
			cluster := newWebs(t, 3)
			keeps, gone := cluster.hosts[0], cluster.hosts[2]
			proxy := keeps.standalone("--log-level", "debug")
			cluster.start()
			for range scale.N(10) {
				nodeFails(t, cluster, keeps, gone, proxy, cut)
			}
		})
	}
}

func nodeFails(t *testing.T, cluster *webs, keeps, gone *web, proxy *netns.Process, cut bool) {
	load := newLoad(t, keeps.node, webRate, keeps.url(proxyPort))
	load.flows(webRate)
	before := len(failedTries(t, proxy, gone.url(instancePort)))
	begun := time.Now()
	if cut {
		cluster.topo.Isolate(gone.node)
	} else {
		for _, pid := range gone.pluginProcesses() {
			kill(t, pid, syscall.SIGKILL)
		}
		gone.run.Kill()
		gone.kill()
	}
	down := time.Now()
	cluster.eventually(20*time.Second, "the agent sees it dead", func() error { return keeps.sees(gone.name, model.StateDead, gone.node.Addr()) })
	dead := time.Now()
	cluster.eventually(10*time.Second, "its instance is no endpoint", keeps.reaches("n1", "n2"))
	load.flows(webRate)
	answers := load.faultless()

	// The last request that it could have got, and the connects in vain. A try
	// over an old connection is known to be lost when its time is over.
	last, tries, refused := begun, 0, 0
	for _, a := range answers {
		if a.from == gone.name && a.sent.After(last) {
			last = a.sent
		}
	}
	for _, f := range failedTries(t, proxy, gone.url(instancePort))[before:] {
		sent := f.ended
		switch f.reason {
		case "no-first-byte":
			sent = sent.Add(-tryTimeout)
		case "connect-refused", "connect-timeout":
			refused++
			continue // nothing was sent
		}
		tries++
		if sent.After(last) {
			last = sent
		}
	}
	t.Logf("%s: down after %v; known as dead %v later; last request sent %v after, %d requests lost on their way and tried elsewhere, %d connects in vain",
		gone.name, down.Sub(begun).Round(time.Millisecond), dead.Sub(down).Round(time.Millisecond), last.Sub(begun).Round(time.Millisecond), tries, refused)
	bound := down.Add(scale.Bound(100*time.Millisecond, 5*time.Second))
	if cut {
		bound = dead.Add(scale.Bound(0, 5*time.Second))
	}
	if last.After(bound) {
		t.Errorf("a request was sent to it %v after the fault, %v at most", last.Sub(begun), bound.Sub(begun))
	}
	// What cannot connect is left out and tried now and then, not by every request; but
	// on a busy machine all may be under way when it dies.
	most := 20
	if scale.Factor() < 1 {
		most += loadWorkers
	}
	if refused > most {
		t.Errorf("%d connects in vain", refused)
	}
	if tries+refused == 0 {
		t.Error("no try failed: nothing was tested")
	}

	if cut {
		cluster.topo.Heal()
	} else {
		gone.serve()
		gone.start()
	}
	for _, w := range cluster.hosts {
		cluster.eventually(30*time.Second, w.name+" sends to all again", w.reaches(cluster.names()...))
	}
}
