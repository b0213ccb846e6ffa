// Command fairlead is the agent and its command line; see `fairlead help`.
package main

import (
	"os"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
)

// version is set by the linker (make build); empty, the Go tool's stamp counts.
var version string

func main() {
	os.Exit(cli.Run(os.Args[1:], cli.SystemEnv(version)))
}
