package iptables

import (
	"context"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/journal"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
)

// adopt goes on with what a process before left in the tables: what the journal
// tells, if the tables hold it. State says it only if they hold nothing else.
func (p *Provider) adopt(ctx context.Context) {
	var memory journal.Memory
	p.journal, memory = journal.Open(p.config.StateDir, rules.Tag(p.config.InstanceID))
	if memory.Snapshot == nil {
		return
	}
	found := make(map[rules.Family]*rules.Table)
	ours := false
	for _, f := range families(!p.opts.NoIPv6) {
		t, err := p.readOnce(ctx, f)
		if err != nil {
			p.log.Warn("what a process before left cannot be read; waiting for a snapshot", "error", err)
			return
		}
		found[f] = t
		for _, tag := range rules.Tags(t) {
			ours = ours || tag == rules.Tag(p.config.InstanceID)
		}
	}
	if !ours {
		return // the kernel was started anew since, or all was removed
	}
	p.base = memory.Snapshot
	exact := memory.Committed
	plans := make(map[rules.Family]*rules.Plan)
	for f, t := range found {
		plans[f] = rules.Build(f, memory.Snapshot.Services(), p.opts, nil)
		if drift := rules.Drift(t, plans[f]); len(drift) > 0 {
			p.log.Warn("the tables are not as the process before left them; repairing", "family", f, "found", drift)
			exact = false
			if err := p.restore(ctx, p.tools, f, rules.Repair(t, plans[f])); err != nil {
				p.log.Warn("the tables cannot be repaired; waiting for a snapshot", "error", err)
				return
			}
		}
		p.tables.plans[f] = plans[f]
		if err := p.mark(f); err != nil {
			p.log.Warn("changes by others will be found late", "error", err)
		}
	}
	if n, err := p.routes.add(memory.Snapshot, p.settings, p.opts); err != nil || n > 0 {
		p.log.Info("routes to VIPs were made anew", "changes", n, "error", err)
	}
	p.show(func(sh *shown) {
		sh.plans, sh.last = plans, memory.Snapshot
		if exact {
			sh.state = dataplane.State{
				Session: memory.Snapshot.Session, Generation: memory.Snapshot.Generation, Digest: memory.Snapshot.Digest,
				InstanceID: p.config.InstanceID, Complete: memory.Snapshot.Completeness.Complete(),
			}
		}
	})
	if err := p.start(); err != nil {
		p.log.Warn("the data path cannot be checked", "error", err)
	}
}
