package sdk_test

import (
	"context"
	"fmt"
	"os"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk"
)

// Table is a data plane that only keeps a table of where connections would go.
// The SDK never calls two of its methods at once, Info and Health apart.
type Table struct {
	instance string
	rows     map[dataplane.Key][]dataplane.Endpoint
}

func (t *Table) Info() dataplane.Info {
	return dataplane.Info{
		Name: "table", Version: "0.1.0",
		Layers: []dataplane.Layer{dataplane.L4}, Scopes: []dataplane.Scope{dataplane.ScopeLocal},
	}
}

func (t *Table) Probe(context.Context) (dataplane.Report, error) {
	return dataplane.Report{Verdict: dataplane.Supported}, nil
}

func (t *Table) Configure(_ context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	t.instance = c.InstanceID
	if t.rows == nil {
		t.rows = make(map[dataplane.Key][]dataplane.Endpoint)
	}
	return nil, nil
}

// Reconcile follows the delta: its work is gone with the process, so there is
// nothing that it does not know of.
func (t *Table) Reconcile(_ context.Context, _ *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	var result dataplane.Result
	for _, c := range delta.Changes {
		if c.New == nil {
			delete(t.rows, c.Key())
		} else {
			t.rows[c.Key()] = c.New.Usable()
		}
		result.Operations++
	}
	return result, nil
}

func (t *Table) Health(context.Context) dataplane.Health {
	return dataplane.Health{State: dataplane.HealthReady}
}

func (t *Table) Cleanup(_ context.Context, what dataplane.CleanupOptions) ([]dataplane.CleanupItem, error) {
	if !what.AllKnown && what.InstanceID != t.instance {
		return nil, nil
	}
	var items []dataplane.CleanupItem
	for k := range t.rows {
		item := dataplane.CleanupItem{Object: k.String(), Result: dataplane.WouldRemove}
		if !what.DryRun {
			delete(t.rows, k)
			item.Result = dataplane.Removed
		}
		items = append(items, item)
	}
	return items, nil
}

func (t *Table) Shutdown(context.Context, dataplane.ShutdownPolicy) error { return nil }

// A provider, whole. Its main is
//
//	func main() { os.Exit(sdk.Serve(&Table{})) }
//
// and what it prints when asked for itself:
func Example() {
	code := sdk.Run(context.Background(), &Table{}, sdk.Env{
		Args: []string{"--plugin-info"}, Getenv: os.Getenv, Stdout: os.Stdout, Stderr: os.Stderr, Parent: os.Getppid,
	})
	fmt.Println("exit code", code)
	// Output:
	// {
	//   "name": "table",
	//   "version": "0.1.0",
	//   "layers": [
	//     "l4"
	//   ],
	//   "scopes": [
	//     "local"
	//   ],
	//   "protocol": 1,
	//   "protocol_minor": 0
	// }
	// exit code 0
}
