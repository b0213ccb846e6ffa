package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manDate stands in all pages, so that two builds of one version are equal.
func manDate() *time.Time {
	date := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	return &date
}

func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIR",
		Short: "Write the man pages of all commands into a directory",
		Long:  "Write the man pages of all commands into DIR, one file per command, for packages.",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef(cmd, "man wants one directory")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			header := &doc.GenManHeader{Section: "1", Source: "Fairlead", Manual: "Fairlead", Date: manDate()}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			pages, err := filepath.Glob(filepath.Join(args[0], "fairlead*.1"))
			if err != nil {
				return fmt.Errorf("man: %w", err)
			}
			if a.output == "json" {
				return printJSON(a.env.Stdout, pages)
			}
			_, err = fmt.Fprintf(a.env.Stdout, "%d pages in %s\n", len(pages), args[0])
			return err
		},
	}
}
