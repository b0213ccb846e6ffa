// Command gentable renews what is generated from the configuration's struct
// tags: docs/config.md and the table in README.md. Its argument is the root of
// the repository. It is run by `go generate ./core/config`.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fairlead/fairlead/core/config"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gentable ROOT")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gentable:", err)
		os.Exit(1)
	}
}

func generate(root string) error {
	docs := filepath.Join(root, "docs")
	if err := os.MkdirAll(docs, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(docs, "config.md"), []byte(config.Reference()), 0o644); err != nil {
		return err
	}
	readme := filepath.Join(root, "README.md")
	text, err := os.ReadFile(readme)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	renewed, err := config.ReplaceTable(text)
	if err != nil {
		return fmt.Errorf("%s: %w", readme, err)
	}
	return os.WriteFile(readme, renewed, 0o644)
}
