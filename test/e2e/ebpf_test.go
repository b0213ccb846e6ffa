package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/reconcile"
	"github.com/fairlead/fairlead/test/netns"
	"github.com/fairlead/fairlead/test/scale"
)

// vipOfWeb is dialled inside of network namespaces of tests only, where nothing
// leads to it but the data plane.
const vipOfWeb = "10.200.0.10:80"

// led is a host whose agent has the data plane ebpf for a cgroup of its own.
type led struct {
	*agent
	cgroup string
	mounts int // a process with a BPF file system and a /run of its own, in which the agent's lives meet
}

// newLed gives an agent of a fleet the data plane. Nothing is started.
func newLed(a *agent, services ...object) *led {
	a.t.Helper()
	l := &led{agent: a, cgroup: netns.Cgroup(a.t)}
	mount := "mount --make-rprivate / && mount -t bpf bpf /sys/fs/bpf && mount -t tmpfs none /run && echo mounted && exec sleep 3600"
	holder := a.node.Start("unshare", []string{"-m", "sh", "-e", "-c", mount})
	l.mounts = holder.Pid()
	a.eventually(5*time.Second, "a BPF file system", func() error {
		if !strings.Contains(holder.Output(), "mounted") {
			return errors.New(holder.Output())
		}
		return nil
	})
	a.args = []string{
		"--dataplane", "ebpf", "--plugins", text(a.t, object{"ebpf": object{"cgroup": l.cgroup}}), "--services", text(a.t, append([]object{}, services...)),
		"--log.format", "json", "--gossip.profile", "local", "--api.listen", "off", "--dns.listen", "off",
	}
	a.env = []string{"FAIRLEAD_PLUGIN_DIRS=" + a.pluginDir()}
	a.under = l.inside()
	a.install("ebpf", "ebpf")
	return l
}

// inside is the command that runs another in the cgroup, where it sees the mounts.
func (l *led) inside() []string {
	return []string{
		"sh", "-e", "-c", `echo $$ > "$0/cgroup.procs"; mounts=$1; shift; exec nsenter --mount="$mounts" "$@"`,
		l.cgroup, fmt.Sprintf("/proc/%d/ns/mnt", l.mounts),
	}
}

// dialLimit is what a connect of an application with its answer may take.
func dialLimit() time.Duration { return scale.Bound(500*time.Millisecond, 5*time.Second) }

// dials starts an application in the cgroup.
func (l *led) dials(args ...string) *dialer {
	l.t.Helper()
	under := append(l.inside(), filepath.Join(plugins, "dialer"))
	under = append(under, "--limit", dialLimit().String())
	return &dialer{l.node.Start(under[0], append(under[1:], args...))}
}

// runsWeb waits until the plane has the service web.
func (l *led) runsWeb(nth int) entry {
	l.t.Helper()
	e := l.ready("ebpf", nth)
	l.eventually(10*time.Second, "the plane has the service", func() error {
		_, err := serves(l.socketOf(e))
		return err
	})
	return e
}

// instanceOfWeb is one instance in the terms of the agents.
func instanceOfWeb(id, address string) object { return object{"id": id, "address": address} }

func webAt(instances ...object) object {
	return object{"name": "web", "port": 80, "vip": "10.200.0.10", "instances": instances}
}

// dialer is an application; see testdata.
type dialer struct{ *netns.Process }

// dial is one line of its output.
type dial struct {
	began, ended time.Time
	name         string // of who answered
	fault        string
}

func (d *dialer) dials() []dial {
	var out []dial
	for line := range strings.Lines(d.Output()) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		f := strings.SplitN(strings.TrimSpace(line), " ", 3)
		began, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil || len(f) < 3 {
			out = append(out, dial{fault: line})
			continue
		}
		ended, _ := strconv.ParseInt(f[1], 10, 64)
		one := dial{began: time.Unix(0, began), ended: time.Unix(0, ended), name: f[2]}
		if fault, failed := strings.CutPrefix(f[2], "error: "); failed {
			one.name, one.fault = "", fault
		}
		out = append(out, one)
	}
	return out
}

// answers waits until each of the names has answered a connect that began from now
// on, and nobody else the last ones.
func (d *dialer) answers(a *agent, names ...string) {
	a.t.Helper()
	from := time.Now()
	a.eventually(10*time.Second, "answers of "+strings.Join(names, ", "), func() error { return d.reaches(from, names...) })
}

// reaches is nil if of the last connects those that began after a time were answered by
// these, each of them, and by nobody else.
func (d *dialer) reaches(from time.Time, names ...string) error {
	known, missing := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		known[name], missing[name] = true, true
	}
	all := d.dials()
	for _, one := range all[max(0, len(all)-20):] {
		if one.began.Before(from) {
			continue
		}
		if !known[one.name] {
			return fmt.Errorf("%+v", one)
		}
		delete(missing, one.name)
	}
	if len(missing) > 0 {
		return fmt.Errorf("none of %v", missing)
	}
	return nil
}

// TestEBPFKilled: kill -9 of agent and plane, one after the other and both, under
// 500 connects a second to a VIP, and their restart: no connect fails.
func TestEBPFKilled(t *testing.T) {
	f := newFleet(t, 1)
	a := f.agents[0]
	l := newLed(a, webAt(instanceOfWeb("a", a.url(9001)), instanceOfWeb("b", a.url(9002))))
	a.runs(9001, "a")
	a.runs(9002, "b")
	a.start()
	plane := l.runsWeb(1)
	load := l.dials("--to", vipOfWeb, "--rate", "500")
	load.answers(a, "a", "b")
	for range scale.N(20) {
		was, lives := len(load.dials()), len(a.entries("plugin is ready"))
		kill(t, plane.PID, syscall.SIGKILL)
		plane = l.runsWeb(lives + 1)
		a.kill()
		if err := os.Remove(a.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		a.eventually(10*time.Second, "connects without an agent", func() error {
			if n := len(load.dials()); n < was+200 {
				return fmt.Errorf("%d of 200", n-was)
			}
			return nil
		})
		a.start()
		plane = l.runsWeb(1)
	}
	load.answers(a, "a", "b")
	load.stopped(t, "a", "b")
}

// TestEBPFNodeDies: when the cable of a node is pulled, no connect to it begins
// after the view has dropped it and the plane has been told, and connections that
// were led to it end within 2 s of that. One that an application made to the same
// address by itself is left alone.
func TestEBPFNodeDies(t *testing.T) {
	f := newFleet(t, 2)
	near, far := f.agents[0], f.agents[1]
	l := newLed(near, webAt(instanceOfWeb("near", near.url(9001))))
	far.args = []string{"--gossip.profile", "local", "--dns.listen", "off", "--api.listen", "off", "--services", text(t, []object{webAt(instanceOfWeb("far", far.url(9001)))})}
	near.runs(9001, "near")
	far.runs(9001, "far")
	near.start()
	far.start()
	f.eventually(20*time.Second, "both see both", f.agreed(near, far))
	l.runsWeb(1)
	load := l.dials("--to", vipOfWeb, "--rate", "100")
	load.answers(near, "near", "far")
	var held *dialer // led to far
	near.eventually(20*time.Second, "a connection that was led there", func() error {
		d := l.dials("--to", vipOfWeb, "--hold")
		near.eventually(5*time.Second, "it is answered", func() error {
			if len(d.dials()) == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		if who := d.dials()[0].name; who != "far" {
			d.Kill()
			return fmt.Errorf("%q answered", who)
		}
		held = d
		return nil
	})
	direct := l.dials("--to", far.url(9001), "--hold")
	near.eventually(5*time.Second, "a direct connection", func() error {
		if got := direct.dials(); len(got) != 1 || got[0].name != "far" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})

	far.node.LinkDown()
	var died time.Time
	f.eventually(60*time.Second, "it died", func() error {
		for _, e := range near.events() {
			if e.Kind == "died" && e.Member.Name == far.name {
				died = e.At
				return nil
			}
		}
		return errors.New("no such event")
	})
	f.eventually(10*time.Second, "the connection ends that was led there", func() error {
		if len(held.dials()) < 2 {
			return errors.New("it is open")
		}
		return nil
	})
	end := held.dials()[1]
	if took := end.ended.Sub(died); took > scale.Bound(2*time.Second, 10*time.Second) {
		t.Errorf("it ended %v after the view dropped the node", took)
	}
	if !strings.Contains(end.fault, "connection abort") && !strings.Contains(end.fault, "reset") {
		t.Errorf("it ended with %q", end.fault)
	}
	t.Logf("it ended %v after the view dropped the node: %s", end.ended.Sub(died), end.fault)
	load.answers(near, "near")
	lasts(dialLimit()) // what reaches nobody has a line in the end

	last := time.Duration(-1 << 62)
	for _, one := range load.dials() {
		if one.name == "" || one.name == "far" {
			last = max(last, one.began.Sub(died))
		}
	}
	t.Logf("the last connect to it began %v after the view dropped the node", last)
	if most := scale.Bound(reconcile.DefaultTick, 10*reconcile.DefaultTick); last > most {
		t.Errorf("a connect to it began %v after the view dropped the node, want %v at most", last, most)
	}

	far.node.LinkUp()
	direct.Signal(syscall.SIGUSR1)
	near.eventually(30*time.Second, "the direct connection goes on", func() error {
		switch got := direct.dials(); {
		case len(got) < 2:
			return errors.New("no second answer")
		case got[1].name != "far":
			t.Fatalf("it ended: %+v", got[1])
		}
		return nil
	})
}

// TestEBPFIntercept: the listener at an address answers until the address is
// intercepted, then instances elsewhere do, and again the listener afterwards.
func TestEBPFIntercept(t *testing.T) {
	f := newFleet(t, 2)
	near, far := f.agents[0], f.agents[1]
	l := newLed(near)
	far.args = []string{"--gossip.profile", "local", "--dns.listen", "off", "--api.listen", "off", "--services", text(t, []object{webAt(instanceOfWeb("far", far.url(9001)))})}
	far.runs(9001, "far")
	const at = "127.0.0.1:8001"
	near.node.Start(filepath.Join(plugins, "instance"), []string{"--name", "own", "--listen", at})
	near.start()
	far.start()
	f.eventually(20*time.Second, "both see both", f.agreed(near, far))
	l.runsWeb(1)
	load := l.dials("--to", at, "--rate", "100")
	load.answers(near, "own")
	from := len(load.dials())
	for range scale.N(10) {
		err := near.ask(func(ctx context.Context, c *client.Client) error {
			_, err := c.Register(ctx, "the test", text(t, object{
				"name": "web", "port": 80, "vip": "10.200.0.10", "intercept": []string{at},
				"instances": []object{{"id": "idle", "address": near.url(9001), "weight": 0}},
			}), false)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		load.answers(near, "far")
		err = near.ask(func(ctx context.Context, c *client.Client) error {
			_, err := c.Deregister(ctx, "web", "")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		load.answers(near, "own")
	}
	for _, one := range load.dials()[from:] {
		if one.name != "own" && one.name != "far" {
			t.Errorf("a connect failed: %+v", one)
		}
	}
}
