package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/test/scale"
)

// natPlane is a plane that works by NAT, with what others on a host do to its tables.
type natPlane struct {
	name, plane string
	settings    object
	flush       string // as an operator does by hand
	reload      string // as a firewall does: what it knows, and nothing else; with a rule that mentions 192.0.2.1
	rules       string // lists the rules, also those of others
	locks       bool   // one lock is for all who alter the tables
}

func natPlanes() []natPlane {
	var out []natPlane
	for _, variant := range []string{"legacy", "nft"} {
		out = append(out, natPlane{
			name: "iptables-" + variant, plane: "iptables", settings: object{"iptables": object{"variant": variant}},
			flush:  fmt.Sprintf("iptables-%s -t nat -F", variant),
			reload: fmt.Sprintf("printf '*nat\n-A OUTPUT -d 192.0.2.1/32 -j RETURN\nCOMMIT\n' | iptables-%s-restore", variant),
			rules:  fmt.Sprintf("iptables-%s -t nat -S", variant),
			locks:  variant == "legacy",
		})
	}
	return append(out, natPlane{
		name: "nftables", plane: "nftables", flush: "nft flush ruleset",
		reload: `printf 'flush ruleset; table ip fw { chain out { type nat hook output priority -100; ip daddr 192.0.2.1 accept; }; }\n' | nft -f -`,
		rules:  "nft list ruleset",
	})
}

// odd is a service that NAT cannot lead: its only frontend is a loopback address.
func odd(h *agent) object {
	return object{"name": "odd", "port": 80, "intercept": []string{"127.0.0.1:8001"}, "instances": []object{instanceOfWeb("odd", h.url(9001))}}
}

// troubleWith is what the agent tells of a service that a plane could not program.
func troubleWith(p client.Plugin, service string) string {
	if p.Told != nil {
		for _, t := range p.Told.Troubles {
			if strings.HasSuffix(t.Service, "/"+service) {
				return t.Status + ": " + t.Message
			}
		}
	}
	return ""
}

// TestTablesAltered: while others flush, reload and lock the tables of a plane that
// works by NAT, and one service is of a kind that it cannot lead, it repairs or shows
// that, and other services are led: without an error but between the loss of the rules
// and their repair.
func TestTablesAltered(t *testing.T) {
	for _, test := range natPlanes() {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newFleet(t, 1).agents[0]
			h := newPlaneHost(a, test.plane, test.settings, odd(a))
			if p := h.serves(test.plane, 3); !strings.HasPrefix(troubleWith(p, "odd"), "UNSUPPORTED") {
				t.Errorf("odd is %q", troubleWith(p, "odd"))
			}
			if out, err := h.run("plugin", "list"); err != nil || !strings.Contains(string(out), "default/odd") {
				t.Errorf("plugin list: %v\n%s", err, out)
			}
			load := h.dials("--to", vipOfWeb, "--rate", "50")
			load.answers(a, "a", "b")
			h.refuses(vipOfEmpty)

			for what, command := range map[string]string{"flush": test.flush, "reload": test.reload} {
				h.loses(load, what, command)
				if rules := h.does("sh", "-c", test.rules); what == "reload" && !strings.Contains(rules, "192.0.2.1") {
					t.Errorf("the rule of the firewall is gone:\n%s", rules)
				}
			}
			if test.locks {
				h.locked(load)
			}
			h.refuses(vipOfEmpty)
			load.Kill()
		})
	}
}

// loses runs a command that takes the rules away, and waits until they are back and
// that is told.
func (h *planeHost) loses(load *dialer, what, command string) {
	h.t.Helper()
	before := len(load.dials())
	told := len(h.drifts())
	begun := time.Now()
	h.does("sh", "-e", "-c", command)
	h.eventually(20*time.Second, "what the "+what+" took is back", func() error {
		if len(h.drifts()) == told {
			return errors.New("it is not told")
		}
		return nil
	})
	took := time.Since(begun)
	h.eventually(20*time.Second, "connects that were begun later", func() error {
		all := load.dials()
		if last := all[len(all)-1]; last.began.Before(begun.Add(took + dialLimit() + 100*time.Millisecond)) {
			return errors.New("not yet")
		}
		return nil
	})
	first, last, failed := time.Duration(0), time.Duration(0), 0
	for _, one := range load.dials()[before:] {
		if one.fault == "" {
			continue
		}
		at := one.began.Sub(begun)
		if failed++; failed == 1 {
			first = at
		}
		first, last = min(first, at), max(last, at)
	}
	h.t.Logf("%s: %d connects failed, begun from %v to %v after it; repair told after %v", what, failed, first, last, took)
	// On a busy machine what was begun before is overtaken.
	if first < -scale.Bound(0, time.Second) || last > took {
		h.t.Errorf("connects fail that were begun from %v to %v after the %s; it was repaired after %v", first, last, what, took)
	}
	// The look is each second; a busy machine takes its time.
	if took > 10*time.Second {
		h.t.Errorf("the %s was repaired after %v", what, took)
	}
}

// drifts are the entries of the log about what others did.
func (h *planeHost) drifts() []entry {
	return h.entries("the system was not as the provider had left it")
}

// locked holds the lock of the tables for long: what is programmed leads on, what
// waits is told, with who has the lock, and is done in the end.
func (h *planeHost) locked(load *dialer) {
	h.t.Helper()
	before := len(load.dials())
	under := append(h.inside(), "flock", "--no-fork", "/run/xtables.lock", "sh", "-c", "echo locked; exec sleep 3600")
	begun := time.Now()
	holder := h.node.Start(under[0], under[1:])
	h.eventually(10*time.Second, "the lock is held", func() error {
		if !strings.Contains(holder.Output(), "locked") {
			return errors.New(holder.Output())
		}
		return nil
	})
	late := object{"name": "late", "port": 80, "vip": "10.200.0.11", "instances": []object{instanceOfWeb("a", h.url(9001))}}
	err := h.ask(func(ctx context.Context, c *client.Client) error {
		_, err := c.Register(ctx, "the test", text(h.t, late), false)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.eventually(30*time.Second, "the lock is shown", func() error {
		p, err := h.plugin("iptables")
		if err != nil || p.Told == nil {
			return fmt.Errorf("told %+v, %v", p.Told, err)
		}
		if said := p.Told.Error + fmt.Sprint(p); !strings.Contains(said, "lock") || !strings.Contains(said, fmt.Sprintf("process %d", holder.Pid())) {
			return errors.New(said)
		}
		return nil
	})
	if out, err := h.run("plugin", "list"); err != nil || !strings.Contains(string(out), "lock") {
		h.t.Errorf("plugin list: %v\n%s", err, out)
	}
	rest := time.NewTimer(time.Duration(scale.N(30))*time.Second - time.Since(begun))
	<-rest.C // the lock is held for as long as is asked for
	holder.Kill()
	h.dials("--to", "10.200.0.11:80", "--rate", "50").answers(h.agent, "a")
	load.answers(h.agent, "a", "b")
	for _, one := range load.dials()[before:] {
		if one.fault != "" {
			h.t.Errorf("while the lock was held a connect failed: %+v", one)
		}
	}
}
