package plane

import (
	"context"
	"fmt"
	"slices"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/host"
	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/table"
	"github.com/fairlead/fairlead/dataplane"
)

// Cleanup removes what instances left in this network namespace. It needs no
// configuration and no file: tables are named after their instance.
func (p *Provider) Cleanup(_ context.Context, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !what.DryRun && (what.AllKnown || what.InstanceID == p.config.InstanceID) {
		p.forget()
	}
	found, err := table.Find()
	if err != nil {
		return nil, fmt.Errorf("%w: nftables: cleanup: %w", dataplane.ErrFailed, err)
	}
	routes, err := host.FindRoutes()
	if err != nil {
		return nil, fmt.Errorf("%w: nftables: cleanup: %w", dataplane.ErrFailed, err)
	}
	c := cleaner{what: what, own: table.Name(what.InstanceID), leaving: p.leaving, live: make(map[string]int)}
	instances := make(map[string]string)
	for _, f := range found {
		instances[f.Tag] = c.instance(f)
		c.tables(f)
	}
	for _, l := range routes {
		c.routes(l, instances)
	}
	return c.items, nil
}

type cleaner struct {
	what    dataplane.CleanupOptions
	own     string // tag of the instance that is meant
	leaving leaving
	live    map[string]int // connections that are waited for, by tag
	items   []dataplane.CleanupItem
}

// instance is whose tables are found; "" if they do not say.
func (c *cleaner) instance(f table.Found) string {
	if f.Tag == c.own {
		return c.what.InstanceID
	}
	return f.Mark.Instance
}

func (c *cleaner) add(object, instance string, result dataplane.CleanupResult, message string) {
	c.items = append(c.items, dataplane.CleanupItem{Object: object, InstanceID: instance, Result: result, Message: message})
}

// each says one thing of several tables.
func (c *cleaner) each(tables []table.Table, instance string, result dataplane.CleanupResult, message string) {
	for _, t := range tables {
		c.add(t.String(), instance, result, message)
	}
}

func (c *cleaner) tables(f table.Found) {
	instance, all := c.instance(f), append(f.Tables[:len(f.Tables):len(f.Tables)], f.Keep...)
	switch {
	case !c.what.AllKnown && f.Tag != c.own:
		c.each(all, instance, dataplane.Kept, "of another instance")
		return
	case c.what.DryRun:
		c.each(all, instance, dataplane.WouldRemove, "")
		return
	}
	if c.what.Linger {
		c.linger(f, instance, all)
		return
	}
	if err := f.Remove(all); err != nil {
		c.each(all, instance, dataplane.Failed, err.Error())
		return
	}
	c.each(all, instance, dataplane.Removed, "")
}

// linger removes what leads, at the first call, and the inert rules once nothing needs
// them. What was there before the call is named.
func (c *cleaner) linger(f table.Found, instance string, all []table.Table) {
	begins := len(f.Tables) > 0
	if begins {
		if err := f.Leave(); err != nil {
			c.each(all, instance, dataplane.Failed, err.Error())
			return
		}
		delete(c.leaving, f.Tag)
	}
	live, err := c.leaving.live(f)
	if err == nil && begins {
		err = f.Note(live)
	}
	needed := func(t table.Table) bool { return slices.Contains(f.Keep, t) && livesIn(live, t.V6) }
	if err == nil {
		err = f.Remove(slices.DeleteFunc(slices.Clone(f.Keep), needed))
	}
	for _, n := range live {
		c.live[f.Tag] += n
	}
	for _, t := range f.Keep {
		switch {
		case err != nil:
			c.add(t.String(), instance, dataplane.Failed, err.Error())
		case needed(t):
			c.add(t.String()+", with a rule that does nothing", instance, dataplane.Pending, c.waits(f.Tag))
		}
	}
	if err != nil {
		all = slices.DeleteFunc(all, func(t table.Table) bool { return slices.Contains(f.Keep, t) })
	}
	c.each(slices.DeleteFunc(all, needed), instance, dataplane.Removed, "")
}

func (c *cleaner) waits(tag string) string {
	return fmt.Sprintf("%d connections in conntrack that were led before would be cut off", c.live[tag])
}

// routes removes those of an instance, unless connections go on: their packets are
// routed by the service's address.
func (c *cleaner) routes(l host.Left, instances map[string]string) {
	instance, ours, waits := "", c.what.AllKnown || l.Of(c.own), ""
	for tag, id := range instances {
		if l.Of(tag) {
			instance = id
			if c.live[tag] > 0 {
				waits = c.waits(tag)
			}
		}
	}
	if l.Of(c.own) {
		instance = c.what.InstanceID
	}
	switch {
	case !ours:
		c.add(l.String(), instance, dataplane.Kept, "of another instance")
	case c.what.DryRun:
		c.add(l.String(), instance, dataplane.WouldRemove, "")
	case waits != "":
		c.add(l.String(), instance, dataplane.Pending, waits)
	default:
		if err := l.Remove(); err != nil {
			c.add(l.String(), instance, dataplane.Failed, err.Error())
			return
		}
		c.add(l.String(), instance, dataplane.Removed, "")
	}
}
