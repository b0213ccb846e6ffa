package cli

import (
	"crypto/rand"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/core/identity"
)

// keygenJSON is the answer of `keygen -o json`. Scripts rely on it: keys are added
// at the end and never renamed.
type keygenJSON struct {
	Secret  string `json:"secret,omitempty"` // if no file was named
	File    string `json:"file,omitempty"`
	Secrets int    `json:"secrets"` // in the file, or printed
}

func (a *app) keygenCommand() *cobra.Command {
	var out, add, promote, drop string
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make a cluster secret, or change the secrets of a file",
		Long: `Print a new secret: one line for the file that cluster.secret_file names, the same
on every node. Whoever has it can be any node of the cluster. --out writes it to a
new file that only its owner can read, and never over one that is there.

To change the secret of a cluster that runs, take three steps. Each is done on one
node; the file is then copied to all others, and every agent reads it, at SIGHUP or
at a restart, before the next step begins:

  1. --add FILE      appends a new secret: all believe it, none uses it yet
  2. --promote FILE  makes the last secret the first: all use the new one
  3. --drop FILE     removes all but the first: the old one is worth nothing now

At no time is there a node that another one does not believe. A step that begins
before the one before is done on all nodes cuts some off, until it is.`,
		Example: "  sudo fairlead keygen --out /etc/fairlead/secret\n  sudo fairlead keygen --add /etc/fairlead/secret",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, f := range []string{"out", "add", "promote", "drop"} {
				if cmd.Flags().Changed(f) && cmd.Flags().Lookup(f).Value.String() == "" {
					return usagef(cmd, "--%s names no file", f)
				}
			}
			switch {
			case out != "":
				return a.newSecretFile(out)
			case add != "":
				return a.changeSecretFile(add, identity.Add, "when every agent has read it, take --promote")
			case promote != "":
				return a.changeSecretFile(promote, identity.Promote, "when every agent has read it, take --drop")
			case drop != "":
				return a.changeSecretFile(drop, identity.Drop, "when every agent has read it, the old secrets are worth nothing")
			}
			return a.newSecret()
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "write the secret to this new `FILE`, mode 0600")
	cmd.Flags().StringVar(&add, "add", "", "append a new secret to `FILE`")
	cmd.Flags().StringVar(&promote, "promote", "", "make the last secret of `FILE` the first one, which signs")
	cmd.Flags().StringVar(&drop, "drop", "", "remove all secrets of `FILE` but the first one")
	return oneOf(cmd, "out", "add", "promote", "drop")
}

// oneOf makes it wrong usage to give two of these flags.
func oneOf(cmd *cobra.Command, flags ...string) *cobra.Command {
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		first := ""
		for _, f := range flags {
			switch {
			case !cmd.Flags().Changed(f):
			case first != "":
				return usagef(cmd, "give --%s or --%s, not both", first, f)
			default:
				first = f
			}
		}
		return run(cmd, args)
	}
	return cmd
}

func (a *app) newSecret() error {
	text, err := identity.Generate(rand.Reader)
	if err != nil {
		return err
	}
	if a.output == "json" {
		return printJSON(a.env.Stdout, keygenJSON{Secret: text, Secrets: 1})
	}
	_, err = fmt.Fprintln(a.env.Stdout, text)
	return err
}

func (a *app) newSecretFile(path string) error {
	if err := identity.CreateFile(path, rand.Reader); err != nil {
		return err
	}
	return a.saySecretFile(path, 1, "copy it to every node, and name it in cluster.secret_file")
}

func (a *app) changeSecretFile(path string, step identity.Step, next string) error {
	n, err := identity.ChangeFile(path, step, rand.Reader)
	if err != nil {
		return err
	}
	return a.saySecretFile(path, n, "copy it to every other node; "+next)
}

func (a *app) saySecretFile(path string, n int, next string) error {
	if a.output == "json" {
		return printJSON(a.env.Stdout, keygenJSON{File: path, Secrets: n})
	}
	noun := "secrets, of which the first signs"
	if n == 1 {
		noun = "secret"
	}
	_, err := fmt.Fprintf(a.env.Stdout, "%s has %d %s now\n→ %s\n", printable(path), n, noun, next)
	return err
}
