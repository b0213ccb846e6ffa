package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fairlead/fairlead/core/api/client"
)

// conflictJSON is what a service wants and another one has.
type conflictJSON struct {
	Kind   string     `json:"kind"`
	What   string     `json:"what"`
	Holder string     `json:"holder"`
	Node   string     `json:"node"`
	Since  *time.Time `json:"since,omitempty"`
	Remedy string     `json:"remedy"`
}

func toConflictsJSON(all []client.Conflict) []conflictJSON {
	out := []conflictJSON{}
	for _, c := range all {
		j := conflictJSON{Kind: c.Kind, What: c.What, Holder: c.Holder, Node: c.Node, Remedy: c.Remedy}
		if !c.Since.IsZero() {
			j.Since = &c.Since
		}
		out = append(out, j)
	}
	return out
}

// warnConflicts says on standard error what a service does not get.
func (a *app) warnConflicts(s client.Service) {
	for _, c := range s.Conflicts {
		since := "it is built in"
		if !c.Since.IsZero() {
			since = "registered " + clock(a.env, c.Since, time.DateTime)
			if c.Node != "" {
				since += ", defined by node " + printable(c.Node)
			}
		}
		fmt.Fprintf(a.env.Stderr, "fairlead: service %s does not get %s %s: service %s has it (%s): %s\n",
			printable(s.Key.String()), printable(c.Kind), printable(c.What), printable(c.Holder), since, printable(c.Remedy))
	}
}

// registeredServices are services of these names as the agent sees them now. What
// it does not answer for is left out: they are registered in any case.
func registeredServices(ctx context.Context, c *client.Client, names []string) []client.Service {
	if len(names) == 1 {
		d, err := c.Endpoints(ctx, names[0])
		if err != nil {
			return nil
		}
		return []client.Service{d.Service}
	}
	list, err := c.Services(ctx) // once: for each question the agent looks at all services
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list.Services, func(s client.Service) bool { return !slices.Contains(names, s.Key.String()) })
}
