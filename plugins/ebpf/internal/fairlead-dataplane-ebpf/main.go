// Command fairlead-dataplane-ebpf is package ebpf as a process, for its tests.
package main

import (
	"os"

	"github.com/fairlead/fairlead/dataplane/sdk"
	"github.com/fairlead/fairlead/plugins/ebpf"
)

func main() { os.Exit(sdk.Serve(ebpf.New())) }
