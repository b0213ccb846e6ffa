// Command flawed is the fake provider under the name of its file, with the
// flaws that a file beside it lists: PROGRAM.flaws, one word each. Without that
// file it has none.
//
//	garbage       prints something else where its handshake is due
//	silent        never shakes hands
//	dies          ends at once
//	version       speaks a contract that is not known yet
//	flood         writes to standard error without end
//	hang          never answers Reconcile
//	lie           answers Reconcile for another generation
//	children      starts a process that holds its pipes
//	unconfigured  says in each Reconcile that it was never configured
//	unsupported   says that it cannot work here
//	inconclusive  says that it does not know
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

func main() {
	text, err := os.ReadFile(os.Args[0] + ".flaws")
	if err != nil && !os.IsNotExist(err) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(handshake.ExitFailed)
	}
	p := &provider{Provider: fake.New(), name: strings.TrimPrefix(filepath.Base(os.Args[0]), handshake.FilePrefix), flaws: strings.Fields(string(text))}
	os.Exit(p.run())
}

type provider struct {
	*fake.Provider
	name  string
	flaws []string
}

func (p *provider) has(flaw string) bool { return slices.Contains(p.flaws, flaw) }

func (p *provider) run() int {
	switch {
	case p.has("garbage"):
		fmt.Println("hello, I am a web server")
		return hold()
	case p.has("silent"):
		return hold()
	case p.has("dies"):
		fmt.Fprintln(os.Stderr, "cannot find my head")
		return 3
	case p.has("version"):
		fmt.Println("1|7|unix|/nowhere|grpc|")
		return hold()
	case p.has("lie"):
		return lie(p)
	case p.has("flood"):
		go func() {
			for i := 0; ; i++ {
				fmt.Fprintf(os.Stderr, "line %d of a plugin that talks too much\n", i)
			}
		}()
	}
	return sdk.Serve(p)
}

// hold waits to be killed, or for the end of a test that is broken.
func hold() int {
	<-time.After(2 * time.Minute)
	return handshake.ExitOK
}

// Info makes it an L7 provider if that is its name: it may run beside one of L4.
func (p *provider) Info() dataplane.Info {
	i := p.Provider.Info()
	i.Name = p.name
	if i.Name == "l7" {
		i.Layers = []dataplane.Layer{dataplane.L7}
	}
	return i
}

// Probe says what the flaws want.
func (p *provider) Probe(ctx context.Context) (dataplane.Report, error) {
	verdict := dataplane.Supported
	switch {
	case p.has("unsupported"):
		verdict = dataplane.Unsupported
	case p.has("inconclusive"):
		verdict = dataplane.Inconclusive
	default:
		return p.Provider.Probe(ctx)
	}
	return dataplane.Report{Verdict: verdict, Checks: []dataplane.Check{
		{ID: "moon", Required: true, Result: verdict, Reason: "there is none", Remedy: "wait for the night"},
	}}, nil
}

func (p *provider) Configure(ctx context.Context, c dataplane.Config) ([]dataplane.Diagnostic, error) {
	if p.has("children") {
		child := exec.Command("/bin/sleep", "1000")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return nil, fmt.Errorf("%w: flawed: %v", dataplane.ErrFailed, err)
		}
	}
	return p.Provider.Configure(ctx, c)
}

func (p *provider) Reconcile(ctx context.Context, next *dataplane.Snapshot, delta dataplane.Delta) (dataplane.Result, error) {
	switch {
	case p.has("hang"):
		<-time.After(2 * time.Minute) // whatever ctx says
	case p.has("unconfigured"):
		return dataplane.Result{}, fmt.Errorf("%w: flawed", dataplane.ErrNotConfigured)
	}
	return p.Provider.Reconcile(ctx, next, delta)
}
