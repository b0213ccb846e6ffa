package ebpf

import (
	"context"
	"fmt"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/datapath"
	"github.com/fairlead/fairlead/plugins/ebpf/internal/host"
)

// Cleanup removes what instances left in any BPF file system that is mounted. It
// needs no configuration and no file: directories are named after their instance.
func (p *Provider) Cleanup(_ context.Context, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	mounts, err := host.Mounts()
	if err != nil {
		return nil, fmt.Errorf("%w: ebpf: cleanup: %w", dataplane.ErrFailed, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !what.DryRun && (what.AllKnown || what.InstanceID == p.config.InstanceID) {
		p.leave()
	}
	var items []dataplane.CleanupItem
	for _, bpffs := range host.BPFFS(mounts) {
		instances, err := datapath.Find(bpffs)
		if err != nil {
			items = append(items, dataplane.CleanupItem{Object: bpffs, Result: dataplane.Failed, Message: err.Error()})
			continue
		}
		for _, found := range instances {
			items = append(items, clean(found, what)...)
		}
	}
	return items, nil
}

// clean removes, or names, the objects of one instance.
func clean(found datapath.Found, what dataplane.CleanupOptions) []dataplane.CleanupItem {
	ours := what.AllKnown || found.Instance == what.InstanceID
	if !ours {
		return []dataplane.CleanupItem{{Object: found.Root, Result: dataplane.Kept, Message: "of instance " + found.Instance, InstanceID: found.Instance}}
	}
	var items []dataplane.CleanupItem
	for _, object := range found.Objects() {
		item := dataplane.CleanupItem{Object: object, Result: dataplane.Removed, InstanceID: found.Instance}
		if what.DryRun {
			item.Result = dataplane.WouldRemove
		} else if err := found.RemoveObject(object); err != nil {
			item.Result, item.Message = dataplane.Failed, err.Error()
		}
		items = append(items, item)
	}
	return items
}
