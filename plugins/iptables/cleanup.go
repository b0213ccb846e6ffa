package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// Cleanup removes what instances left in the tables of both variants, and their
// routes. It needs no configuration and no file: names and numbers tell whose they
// are.
func (p *Provider) Cleanup(ctx context.Context, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	release, err := p.take(ctx, "Cleanup")
	if err != nil {
		return nil, err
	}
	defer release()
	tools, err := p.find(ctx)
	if err != nil && !errors.Is(err, host.ErrNoTools) {
		return nil, fmt.Errorf("%w: iptables: cleanup: %w", dataplane.ErrFailed, err)
	}
	if !what.DryRun && (what.AllKnown || what.InstanceID == p.config.InstanceID) {
		p.leave()
		if err := p.journal.Remove(); err != nil {
			p.log.Warn("what was programmed is remembered though it is gone", "error", err)
		}
	}
	var items []dataplane.CleanupItem
	for _, v := range []host.Variant{host.Legacy, host.NFT} {
		t, installed := tools[v]
		if !installed {
			continue
		}
		for _, f := range families(t.HasV6() && host.HasIPv6()) {
			items = append(items, p.cleanTable(ctx, t, f, what)...)
		}
	}
	waits := ""
	for _, i := range items {
		if i.Result == dataplane.Pending {
			waits = i.Message
		}
	}
	return append(items, p.cleanRoutes(what, waits)...), nil
}

// cleanTable removes, or names, what stands in one table. One that is not there, or
// that this kernel does not have, holds nothing.
func (p *Provider) cleanTable(ctx context.Context, t host.Tools, f rules.Family, what dataplane.CleanupOptions) []dataplane.CleanupItem {
	name := fmt.Sprintf("%v nat table (%s)", f, t.Variant)
	if t.Variant == host.Legacy && !legacyNAT(f) {
		return nil
	}
	found, err := p.read(ctx, t, f)
	if errors.Is(err, host.ErrAbsent) {
		return nil
	}
	if err != nil {
		return []dataplane.CleanupItem{{Object: name, Result: dataplane.Failed, Message: err.Error()}}
	}
	linger, waits := false, ""
	if what.Linger && !what.DryRun {
		linger, waits = p.mustStay(found, f, what)
	}
	text, list := rules.Cleanup(found, what.InstanceID, what.AllKnown, linger)
	if len(text) > 0 && !what.DryRun {
		err = p.restore(ctx, t, f, text)
	}
	items := make([]dataplane.CleanupItem, 0, len(list)+1)
	stays := false
	for _, i := range list {
		item := dataplane.CleanupItem{Object: name + ": " + i.Object, Result: dataplane.Removed}
		switch {
		case !i.Goes && linger && i.Tag == rules.Tag(what.InstanceID) && i.Inert:
			item.Result, item.Message, stays = dataplane.Pending, waits, true
		case !i.Goes:
			item.Result, item.Message = dataplane.Kept, i.Why
		case what.DryRun:
			item.Result = dataplane.WouldRemove
		case err != nil:
			item.Result, item.Message = dataplane.Failed, err.Error()
		}
		items = append(items, item)
	}
	if linger && !stays && len(text) > 0 && err == nil {
		items = append(items, dataplane.CleanupItem{Object: name + ": the rule that keeps connections", Result: dataplane.Pending, Message: waits})
	}
	return items
}

// mustStay reports whether conntrack holds connections that were led: without any
// rule that needs it the kernel would stop translating them. Which frontends those
// went to is known from the rules, and remembered once those are gone; a process
// that does not know takes every connection that was translated for one of ours.
func (p *Provider) mustStay(found *rules.Table, f rules.Family, what dataplane.CleanupOptions) (bool, string) {
	p.leaving = append(p.leaving, rules.Frontends(found, what.InstanceID, what.AllKnown)...)
	ours := make(map[dataplane.Binding]bool)
	for _, b := range p.leaving {
		if f.Of(b.Addr.Addr()) {
			ours[b] = true
		}
	}
	if !standing(found, what) {
		return false, ""
	}
	n, err := host.CountFlows(hostFamily(f), func(flow host.Flow) bool {
		return flow.Translated() && flow.Endpoint.Port() != 0 && (ours[flow.Frontend] || len(p.leaving) == 0)
	})
	if err != nil {
		p.log.Warn("connections that were led may break: conntrack cannot be asked", "error", err)
		return false, ""
	}
	if n == 0 {
		return false, ""
	}
	return true, fmt.Sprintf("%d %v connections in conntrack", n, f)
}

// standing reports whether a table holds anything that Cleanup would remove.
func standing(found *rules.Table, what dataplane.CleanupOptions) bool {
	for _, tag := range rules.Tags(found) {
		if what.AllKnown || tag == rules.Tag(what.InstanceID) {
			return true
		}
	}
	return false
}

// cleanRoutes removes, or names, the routes of instances. While connections wait for
// their end their packets need the routes.
func (p *Provider) cleanRoutes(what dataplane.CleanupOptions, waits string) []dataplane.CleanupItem {
	all, err := host.FindRoutes()
	if errors.Is(err, os.ErrPermission) {
		return nil
	}
	if err != nil {
		return []dataplane.CleanupItem{{Object: "routes to VIPs", Result: dataplane.Failed, Message: err.Error()}}
	}
	var items []dataplane.CleanupItem
	for _, r := range all {
		mine := what.AllKnown || r == host.NewRoutes(routeTag(what.InstanceID))
		objects, err := r.Objects()
		if err == nil && mine && !what.DryRun && waits == "" {
			_, err = r.Set(nil)
		}
		for _, object := range objects {
			item := dataplane.CleanupItem{Object: object, Result: dataplane.Removed}
			switch {
			case !mine:
				item.Result, item.Message = dataplane.Kept, "another instance's"
			case what.DryRun:
				item.Result = dataplane.WouldRemove
			case waits != "":
				item.Result, item.Message = dataplane.Pending, waits
			case err != nil:
				item.Result, item.Message = dataplane.Failed, err.Error()
			}
			items = append(items, item)
		}
	}
	return items
}
