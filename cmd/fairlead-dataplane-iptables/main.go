// Command fairlead-dataplane-iptables is the data plane of rules in the nat tables,
// under an agent; see plugins/iptables/README.md.
package main

import (
	"os"

	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/plugins/iptables"
)

// version is set by the linker (make build).
var version = "devel"

func main() { os.Exit(sdk.Serve(iptables.New(version))) }
