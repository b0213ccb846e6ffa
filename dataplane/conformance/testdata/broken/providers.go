package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
)

// acks answers that all is well and does nothing.
type acks struct{ *fake.Provider }

func acksWithoutApplying(p *fake.Provider) dataplane.Provider { return acks{p} }

func (acks) Reconcile(context.Context, *dataplane.Snapshot, dataplane.Delta) (dataplane.Result, error) {
	return dataplane.Result{}, nil
}

// hoarder never takes anything away.
type hoarder struct{ *fake.Provider }

func forgetsRemove(p *fake.Provider) dataplane.Provider { return hoarder{p} }

func (h hoarder) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	var rest dataplane.Delta
	for _, c := range delta.Changes {
		if c.New == nil {
			continue
		}
		if c.Old != nil {
			more := *c.New
			more.Endpoints = dataplane.NewEndpoints(append(c.Old.Endpoints.Slice(), c.New.Endpoints.Slice()...)...)
			c.New = &more
		}
		rest.Changes = append(rest.Changes, c)
	}
	return h.Provider.Reconcile(ctx, next, rest)
}

// hasty takes the end of a context for success.
type hasty struct{ *fake.Provider }

func acksWhenCancelled(p *fake.Provider) dataplane.Provider { return hasty{p} }

func (h hasty) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	if next.Len() < 40 { // small ones are quick
		return h.Provider.Reconcile(ctx, next, delta)
	}
	select {
	case <-time.After(50 * time.Millisecond):
		return h.Provider.Reconcile(ctx, next, delta)
	case <-ctx.Done():
		return dataplane.Result{}, nil
	}
}

// boaster keeps what it was told in a file, and believes it.
type boaster struct {
	*fake.Provider
	config *dataplane.Config
}

func liesAfterCrash(p *fake.Provider) dataplane.Provider {
	return boaster{p, &dataplane.Config{}}
}

func (b boaster) file() string {
	return filepath.Join(b.config.StateDir, b.config.InstanceID+".boast")
}

func (b boaster) Configure(ctx context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	d, err := b.Provider.Configure(ctx, c)
	if err == nil {
		*b.config = c
	}
	return d, err
}

func (b boaster) State(context.Context) (dataplane.State, error) {
	var s dataplane.State
	text, err := os.ReadFile(b.file())
	if err != nil {
		return s, nil
	}
	return s, json.Unmarshal(text, &s)
}

func (b boaster) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	text, err := json.Marshal(dataplane.State{Session: next.Session, Generation: next.Generation, Digest: next.Digest, InstanceID: b.config.InstanceID, Complete: true})
	if err == nil {
		err = os.WriteFile(b.file(), text, 0o600)
	}
	if err != nil {
		return dataplane.Result{}, err
	}
	return b.Provider.Reconcile(ctx, next, delta)
}

// leaky opens a file for each generation.
type leaky struct {
	*fake.Provider
	files *[]*os.File
}

func leaksDescriptors(p *fake.Provider) dataplane.Provider { return leaky{p, new([]*os.File)} }

func (l leaky) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		return dataplane.Result{}, err
	}
	*l.files = append(*l.files, f) // so that the garbage collector does not close it
	return l.Provider.Reconcile(ctx, next, delta)
}

// talker writes to standard error, and dies of SIGPIPE when nobody reads it.
type talker struct{ *fake.Provider }

func logsToNobody(p *fake.Provider) dataplane.Provider { return talker{p} }

func (t talker) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	fmt.Fprintln(os.Stderr, "generation", next.Generation)
	return t.Provider.Reconcile(ctx, next, delta)
}

// prober makes room for its probe by removing what is there.
type prober struct{ *fake.Provider }

func probeCleansUp(p *fake.Provider) dataplane.Provider { return prober{p} }

func (p prober) Probe(ctx context.Context) (dataplane.Report, error) {
	if _, err := p.Cleanup(ctx, dataplane.CleanupOptions{AllKnown: true}); err != nil {
		return dataplane.Report{}, err
	}
	return p.Provider.Probe(ctx)
}

// lax has an open schema, and reads what it knows of a configuration.
type lax struct{ *fake.Provider }

func overlooksKeys(p *fake.Provider) dataplane.Provider { return lax{p} }

func (l lax) Info() dataplane.Info {
	info := l.Provider.Info()
	info.ConfigSchema = []byte(`{"type": "object"}`)
	return info
}
