// Command fairlead-dataplane-ebpf is the data plane at the sockets, under an
// agent; see plugins/ebpf/README.md.
package main

import (
	"os"

	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/plugins/ebpf"
)

// version is set by the linker (make build).
var version = "devel"

func main() { os.Exit(sdk.Serve(ebpf.New(version))) }
