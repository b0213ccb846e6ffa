package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/scaffold"
)

// newPluginJSON is what `plugin new -o json` prints.
type newPluginJSON struct {
	Name   string   `json:"name"`
	Module string   `json:"module"`
	Dir    string   `json:"dir"`
	Files  []string `json:"files"`
}

func (a *app) pluginNewCommand() *cobra.Command {
	var dir, module, source string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write a first version of a data plane of your own, in Go",
		Long: `Write a first version of a data plane of your own, in Go: a module that builds and
keeps the contract as it is. It keeps a table of the live instances in files; put
your kernel, proxy or load balancer in their place.

NAME is a small letter, then up to 31 small letters, digits and hyphens. Files
that are there already are never replaced. See docs/plugins.md for what to get
right.`,
		Example: `  fairlead plugin new mine
  fairlead plugin new mine --dir ~/src/mine --module example.com/me/mine --fairlead ~/src/fairlead`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              exactlyOne("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			plan := scaffold.Plan{Name: args[0]}
			plan.Module = cmp.Or(module, "example.com/"+plan.Program())
			err := a.sourceOf(&plan, source)
			if err != nil {
				return usagef(cmd, "%w", err)
			}
			files, err := scaffold.Render(plan)
			switch {
			case errors.Is(err, scaffold.ErrBadPlan):
				return usagef(cmd, "%w", err)
			case err != nil:
				return err
			}
			dir := cmp.Or(dir, plan.Program())
			if err := scaffold.Write(dir, files); err != nil {
				return err
			}
			return a.printNew(plan, dir, files)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "dir", "", "`DIR` to write into, made if it is not there (default: fairlead-dataplane-NAME)")
	flags.StringVar(&module, "module", "", "`PATH` of the Go module (default: example.com/fairlead-dataplane-NAME)")
	flags.StringVar(&source, "fairlead", "", "`VERSION` of Fairlead to build with, or DIR of a clone (default: the version of this program)")
	return cmd
}

// sourceOf finds out where Fairlead's module is to come from. A name that is
// wrong is not its business: that comes first.
func (a *app) sourceOf(plan *scaffold.Plan, source string) error {
	plan.Version = cmp.Or(source, a.env.Version)
	if source == "" {
		wrong := plan.Validate()
		if errors.Is(wrong, scaffold.ErrBadVersion) {
			return fmt.Errorf("this program is %s, which is no release: give the directory of your clone of Fairlead, --fairlead DIR", a.env.Version)
		}
		return nil
	}
	if !strings.ContainsRune(source, filepath.Separator) && source != "." && source != ".." {
		if _, err := os.Stat(source); err != nil {
			return nil // a version, or Render says what it should be
		}
	}
	text, err := os.ReadFile(filepath.Join(source, "go.mod"))
	if err != nil || !strings.HasPrefix(string(text), "module github.com/fairlead/fairlead\n") {
		return fmt.Errorf("--fairlead %q is no clone of Fairlead: want the directory with its go.mod, or a version such as v1.2.3", source)
	}
	clone, err := filepath.Abs(source)
	if err != nil {
		return fmt.Errorf("--fairlead %q: %w", source, err)
	}
	plan.Version, plan.Clone = "", clone
	return nil
}

func (a *app) printNew(plan scaffold.Plan, dir string, files []scaffold.File) error {
	out := newPluginJSON{Name: plan.Name, Module: plan.Module, Dir: dir}
	for _, f := range files {
		out.Files = append(out.Files, f.Name)
	}
	if a.output == "json" {
		return printJSON(a.env.Stdout, out)
	}
	_, err := fmt.Fprintf(a.env.Stdout, `%s has %s.
Build it and hold it to the contract:

  cd %s
  make
  fairlead plugin conform --exec ./%s
`, dir, strings.Join(out.Files, ", "), dir, plan.Program())
	return err
}
