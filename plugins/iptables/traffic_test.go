package iptables

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane/conformance/l4"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/test/scale"
)

// foreignRule is a rule of somebody else in the nat table that leads nothing.
var foreignRule = []string{"-p", "tcp", "-d", "192.0.2.77", "--dport", "77", "-m", "comment", "--comment", "somebody else", "-j", "REDIRECT", "--to-ports", "78"}

// foreign adds a rule of somebody else, and says how to see whether it still stands.
func foreign(v host.Variant) func(l4.Host) (func() error, error) {
	run := func(action string) error {
		for _, command := range []string{"iptables-", "ip6tables-"} {
			rule := strings.Join(foreignRule, " ")
			if command == "ip6tables-" {
				rule = strings.ReplaceAll(rule, "192.0.2.77", "2001:db8::77")
			}
			rule = strings.ReplaceAll(rule, "somebody else", "somebody-else")
			args := append([]string{"-w", "5", "-t", "nat", action, "OUTPUT"}, strings.Fields(rule)...)
			if out, err := exec.Command(command+string(v), args...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s%s %s: %w: %s", command, v, action, err, out)
			}
		}
		return nil
	}
	return func(l4.Host) (func() error, error) {
		if err := run("-A"); err != nil {
			return nil, err
		}
		return func() error {
			if err := run("-C"); err != nil {
				return errors.Join(errors.New("the rule of somebody else is gone"), err)
			}
			return nil
		}, nil
	}
}

// damage is what other programs do to rules that are not theirs.
func damage(v host.Variant) map[string]func(l4.Host) error {
	both := func(args ...string) func(l4.Host) error {
		return func(l4.Host) error {
			var errs error
			for _, command := range []string{"iptables-", "ip6tables-"} {
				if out, err := exec.Command(command+string(v), append([]string{"-w", "5", "-t", "nat"}, args...)...).CombinedOutput(); err != nil {
					errs = errors.Join(errs, fmt.Errorf("%w: %s", err, out))
				}
			}
			return errs
		}
	}
	return map[string]func(l4.Host) error{
		"the nat table flushed": both("-F"),
		"OUTPUT flushed":        both("-F", "OUTPUT"),
		"the rules loaded anew": reload(v),
	}
}

// reload replaces the nat table by what others have there, as a firewall does that
// keeps its own rules in a file.
func reload(v host.Variant) func(l4.Host) error {
	return func(l4.Host) error {
		for _, command := range []string{"iptables-", "ip6tables-"} {
			command += string(v)
			line := fmt.Sprintf("%s-save -t nat | grep -v 'FAIRLEAD\\|fairlead' | %s-restore -w 5 -T nat", command, command)
			if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
		}
		return nil
	}
}

// TestTraffic sends real packets in a network of hosts: the suite of all data planes
// for layer 4, with each variant.
func TestTraffic(t *testing.T) {
	path := build(t)
	eachVariant(t, func(t *testing.T, v host.Variant) {
		l4.Test(t, l4.Target{Exec: path}, l4.Profile{
			Without: map[l4.Feature]string{
				l4.Ends:          "NAT cannot end connections",
				l4.ConntrackFree: "NAT is made by conntrack",
				l4.Loopback:      "frontends on loopback addresses need route_localnet, which nobody sets silently",
			},
			Foreign: foreign(v),
			Damage:  damage(v),
		}, l4.Options{Config: fmt.Appendf(nil, `{"variant": %q, "pools": ["10.200.0.0/16", "fd00:200::/64"]}`, v), Scale: scale.Factor()})
	})
}
