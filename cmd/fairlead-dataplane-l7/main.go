// Command fairlead-dataplane-l7 is the HTTP proxy, under an agent or by itself;
// see plugins/l7/README.md.
package main

import (
	"os"

	"github.com/fairlead/fairlead/plugins/l7"
)

// version is set by the linker (make build).
var version = "devel"

func main() { os.Exit(l7.Main(version)) }
