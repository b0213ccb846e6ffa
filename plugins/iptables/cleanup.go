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
	linger := what.Linger && !what.DryRun && standing(found, what)
	text, list := rules.Cleanup(found, what.InstanceID, what.AllKnown, linger)
	if len(text) > 0 && !what.DryRun {
		err = p.restore(ctx, t, f, text)
	}
	waits := ""
	var stuck error // why the inert rule could not be removed
	if linger && err == nil {
		if waits = p.waits(t.Variant, f, found, what); waits == "" {
			stuck = p.dropInert(ctx, t, f, what)
		}
	}
	items := make([]dataplane.CleanupItem, 0, len(list)+1)
	stays := false
	for _, i := range list {
		item := dataplane.CleanupItem{Object: name + ": " + i.Object, Result: dataplane.Removed}
		item.InstanceID = p.whose(what, func(id string) bool { return i.Tag == rules.Tag(id) })
		inert := !i.Goes && linger && i.Tag == rules.Tag(what.InstanceID) && i.Inert
		switch {
		case inert && waits != "":
			item.Result, item.Message, stays = dataplane.Pending, waits, true
		case inert && stuck == nil && err == nil:
		case !i.Goes && !inert:
			item.Result, item.Message = dataplane.Kept, i.Why
		case what.DryRun:
			item.Result = dataplane.WouldRemove
		case err != nil:
			item.Result, item.Message = dataplane.Failed, err.Error()
		case inert:
			item.Result, item.Message = dataplane.Failed, stuck.Error()
			stuck = nil
		}
		items = append(items, item)
	}
	keeps := dataplane.CleanupItem{Object: name + ": the rule that keeps connections"}
	if !what.AllKnown {
		keeps.InstanceID = what.InstanceID
	}
	switch {
	case stuck != nil:
		keeps.Result, keeps.Message = dataplane.Failed, stuck.Error()
		items = append(items, keeps)
	case waits != "" && !stays:
		keeps.Result, keeps.Message = dataplane.Pending, waits
		items = append(items, keeps)
	}
	return items
}

// whose is the instance of an object, as far as it is known: names and numbers tell of
// a given instance only whether it is that one's.
func (p *Provider) whose(what dataplane.CleanupOptions, has func(instance string) bool) string {
	for _, id := range []string{what.InstanceID, p.config.InstanceID} {
		if id != "" && has(id) {
			return id
		}
	}
	return ""
}

// dropInert removes the rule that was left by the last restore, or by one before.
func (p *Provider) dropInert(ctx context.Context, t host.Tools, f rules.Family, what dataplane.CleanupOptions) error {
	found, err := p.read(ctx, t, f)
	if err != nil {
		return err
	}
	text, _ := rules.Cleanup(found, what.InstanceID, what.AllKnown, false)
	if len(text) == 0 {
		return nil
	}
	return p.restore(ctx, t, f, text)
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
		instance := p.whose(what, func(id string) bool { return r == host.NewRoutes(routeTag(id)) })
		objects, err := r.Objects()
		if err == nil && mine && !what.DryRun && waits == "" {
			_, err = r.Set(nil)
		}
		for _, object := range objects {
			item := dataplane.CleanupItem{Object: object, Result: dataplane.Removed, InstanceID: instance}
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
