package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/core/model"
)

// serviceJSON is one entry of `services -o json`. Scripts rely on it: keys are
// added at the end and never renamed.
type serviceJSON struct {
	Namespace   string       `json:"namespace"`
	Name        string       `json:"name"`
	VIP         string       `json:"vip"`
	Ports       []string     `json:"ports"`
	Ready       int          `json:"ready"`
	Total       int          `json:"total"`
	DefinedBy   string       `json:"defined_by"`
	DefinedByID model.NodeID `json:"defined_by_id"`
	Disagreeing []string     `json:"disagreeing"`
	Source      string       `json:"source"`

	Conflicts []conflictJSON `json:"conflicts"`
}

// incomplete is the completeness of a view that may lack what exists.
const incomplete = "incomplete"

func (a *app) servicesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "services",
		Short: "List the services of all nodes",
		Long: `List the services of all nodes as one agent sees them.

READY counts the endpoints that take connections, of all instances. DEFINED BY is
the node whose definition counts: of those that are up, the one where the service
was defined first. Nodes that define it in another way are named as disagreeing;
"fairlead endpoints NAME" shows in what. SOURCE is where the agent's own node
defines the service: a file and line, or api. What a service wants and another one
has, an address or a host, is told below.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.call(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.Services(ctx)
				if err != nil {
					return err
				}
				a.warnUnready(ctx, c)
				a.warnIncomplete(list.Completeness)
				if a.output == "json" {
					out := make([]serviceJSON, len(list.Services))
					for i, s := range list.Services {
						out[i] = toServiceJSON(s)
					}
					return printJSON(a.env.Stdout, out)
				}
				err = printServices(a.env.Stdout, a.env, list.Services)
				for _, s := range list.Services {
					a.warnConflicts(s)
				}
				return err
			})
		},
	}
}

// warnIncomplete says on standard error that an agent which started just now
// may not know of all there is.
func (a *app) warnIncomplete(completeness string) {
	if completeness == incomplete {
		fmt.Fprintln(a.env.Stderr, "fairlead: the agent started just now and may not know of all services yet")
	}
}

func toServiceJSON(s client.Service) serviceJSON {
	return serviceJSON{
		Namespace: s.Key.Namespace, Name: s.Key.Name, VIP: s.VIP, Ports: append([]string{}, s.Ports...), Ready: s.Ready, Total: s.Total,
		DefinedBy: s.DefinedBy, DefinedByID: s.DefinedByID, Disagreeing: append([]string{}, s.Disagreeing...), Source: s.Source,
		Conflicts: toConflictsJSON(s.Conflicts),
	}
}

func printServices(w io.Writer, env Env, list []client.Service) error {
	rows := [][]cell{cells("NAME", "VIP", "PORTS", "READY", "DEFINED BY", "SOURCE", "DISAGREEING")}
	for _, s := range list {
		row := cells(serviceName(s.Key), dash(s.VIP), dash(strings.Join(s.Ports, ",")), fmt.Sprintf("%d/%d", s.Ready, s.Total),
			dash(s.DefinedBy), dash(s.Source), dash(strings.Join(s.Disagreeing, ",")))
		switch {
		case s.Ready == 0:
			row[3].sgr = "31" // red
		case s.Ready < s.Total:
			row[3].sgr = "33" // yellow
		}
		if len(s.Disagreeing) > 0 {
			row[6].sgr = "33"
		}
		rows = append(rows, row)
	}
	if err := table(w, env.colour(), rows); err != nil {
		return fmt.Errorf("write the list: %w", err)
	}
	return nil
}

// serviceName leaves the usual namespace out.
func serviceName(k model.ServiceKey) string {
	if k.Namespace == model.DefaultNamespace {
		return printable(k.Name)
	}
	return printable(k.String())
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}
