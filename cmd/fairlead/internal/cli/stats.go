package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// counterJSON is one entry of `stats -o json`. Scripts rely on it: keys are added
// at the end and never renamed.
type counterJSON struct {
	Provider   string `json:"provider"`
	Service    string `json:"service"`
	EndpointID string `json:"endpoint_id"` // 16 hexadecimal digits; empty: of the service
	Instance   string `json:"instance"`
	Node       string `json:"node"`
	Name       string `json:"name"`
	Value      uint64 `json:"value"`
}

func (a *app) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [SERVICE]",
		Short: "List what the data planes counted",
		Long: `List the counters of the data planes of the agent's node: per service and
endpoint, and as a whole with the reasons why connections were refused. They only
rise while a data plane runs, except for programmed_services and
programmed_endpoints, which tell what is in force. Counters that are 0 are left
out, except with -o json.`,
		Example: `  fairlead stats
  fairlead stats web -o json`,
		Args:              maxArgs(1),
		ValidArgsFunction: first(a.completeService),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := strings.Join(args, "")
			if len(args) > 0 {
				if _, err := model.ParseServiceKey(name); err != nil {
					return usagef(cmd, "%w", err)
				}
			}
			return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.Counters(ctx, name)
				if err != nil {
					return err
				}
				if err := a.printCounters(list.Counters); err != nil {
					return err
				}
				for _, p := range list.Problems {
					fmt.Fprintf(a.env.Stderr, "fairlead: not all counters of %s are there: %s\n", printable(p.Provider), printable(p.Error))
				}
				if len(list.Problems) > 0 {
					return &exitError{code: ExitDegraded}
				}
				return nil
			})
		},
	}
}

func (a *app) printCounters(list []client.Counter) error {
	if a.output == "json" {
		out := make([]counterJSON, len(list))
		for i, c := range list {
			out[i] = toCounterJSON(c)
		}
		return printJSON(a.env.Stdout, out)
	}
	return printCounters(a.env.Stdout, a.env, list)
}

func printCounters(w io.Writer, env Env, list []client.Counter) error {
	list = slices.DeleteFunc(slices.Clone(list), func(c client.Counter) bool { return c.Value == 0 })
	// What belongs together stands together: a data plane itself, then its services,
	// each with its endpoints.
	slices.SortStableFunc(list, func(a, b client.Counter) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Service, b.Service),
			cmp.Compare(place(a), place(b)), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Instance, b.Instance))
	})
	rows := [][]cell{cells("PROVIDER", "SERVICE", "ENDPOINT", "COUNTER", "VALUE")}
	for _, c := range list {
		service := "-"
		if key, err := model.ParseServiceKey(c.Service); err == nil {
			service = serviceName(key)
		}
		endpoint := "-"
		switch {
		case c.Instance != "":
			endpoint = printable(c.Instance) + "@" + printable(c.Node)
		case c.EndpointID != 0:
			endpoint = fmt.Sprintf("%016x (gone)", c.EndpointID)
		}
		rows = append(rows, cells(printable(c.Provider), service, endpoint, printable(c.Name), strconv.FormatUint(c.Value, 10)))
	}
	if err := table(w, env.colour(), rows); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}

func toCounterJSON(c client.Counter) counterJSON {
	out := counterJSON{Provider: c.Provider, Service: c.Service, Instance: c.Instance, Node: c.Node, Name: c.Name, Value: c.Value}
	if c.EndpointID != 0 {
		out.EndpointID = fmt.Sprintf("%016x", c.EndpointID)
	}
	return out
}

// place orders the counters of a service: its own, those of its endpoints, those
// of endpoints that are gone.
func place(c client.Counter) int {
	switch {
	case c.Instance != "":
		return 1
	case c.EndpointID != 0:
		return 2
	}
	return 0
}
