// Command fairlead-dataplane-nftables is a data plane of Fairlead that leads
// connections by nftables, without the program nft. See README.md.
package main

import (
	"os"

	"github.com/fairlead/fairlead/contrib/plugins/nftables/internal/plane"
	"github.com/fairlead/fairlead/dataplane/sdk"
)

func main() { os.Exit(sdk.Serve(plane.New())) }
