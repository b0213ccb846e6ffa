// Command fairlead is the agent and its command line; see `fairlead help`.
package main

import (
	"os"

	"github.com/fairlead/fairlead/cmd/fairlead/internal/cli"
)

func main() {
	os.Exit(cli.Run(os.Args[1:], cli.SystemEnv()))
}
