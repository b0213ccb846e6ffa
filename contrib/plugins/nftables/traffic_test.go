package main

import (
	"errors"
	"testing"

	"github.com/google/nftables"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/netspace"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane/conformance/l4"
)

// TestTraffic asks where connections and datagrams go.
func TestTraffic(t *testing.T) {
	netspace.Require(t)
	l4.Test(t, l4.Target{Exec: build(t)}, profile(), l4.Options{Scale: netspace.Scale()})
}

func profile() l4.Profile {
	return l4.Profile{
		Without: map[l4.Feature]string{
			l4.Ends:          "NAT has no hold on sockets",
			l4.ConntrackFree: "it is NAT",
			l4.Loopback:      "NAT leads a loopback address elsewhere with route_localnet only, which nobody should set",
		},
		Foreign: foreign,
		Damage: map[string]func(l4.Host) error{
			"flush ruleset": func(l4.Host) error { return change(func(c *nftables.Conn) { c.FlushRuleset() }) },
			"flush the rules of the table": func(h l4.Host) error {
				return change(func(c *nftables.Conn) { c.FlushTable(tableOf(h)) })
			},
			"flush what is chosen from": func(h l4.Host) error {
				return change(func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: tableOf(h), Name: "slots"}) })
			},
			"flush the frontends": func(h l4.Host) error {
				return change(func(c *nftables.Conn) { c.FlushSet(&nftables.Set{Table: tableOf(h), Name: "frontends"}) })
			},
			"delete the table": func(h l4.Host) error {
				return change(func(c *nftables.Conn) { c.DelTable(tableOf(h)) })
			},
		},
	}
}

func tableOf(h l4.Host) *nftables.Table {
	return &nftables.Table{Name: table.Name(h.InstanceID), Family: nftables.TableFamilyIPv4}
}

// change is one transaction of somebody else.
func change(add func(*nftables.Conn)) error {
	c := new(nftables.Conn)
	add(c)
	return c.Flush()
}

// foreign makes a table of somebody else, and says how to ask for it.
func foreign(l4.Host) (func() error, error) {
	const name = "somebody"
	err := change(func(c *nftables.Conn) {
		t := c.AddTable(&nftables.Table{Name: name, Family: nftables.TableFamilyIPv4})
		c.AddChain(&nftables.Chain{Table: t, Name: "output", Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	})
	return func() error {
		list, err := new(nftables.Conn).ListChainsOfTableFamily(nftables.TableFamilyIPv4)
		if err != nil {
			return err
		}
		for _, c := range list {
			if c.Table.Name == name && c.Name == "output" {
				return nil
			}
		}
		return errors.New("the chain of somebody else is gone")
	}, err
}
