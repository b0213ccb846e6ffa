// Command fairlead-dataplane-fake is the reference provider as a process: what
// package fake does, served by package sdk. FAKE_KERNEL names a directory that
// plays the kernel; without it, what is programmed is gone with the process.
package main

import (
	"os"

	"github.com/fairlead/fairlead/dataplane/fake"
	"github.com/fairlead/fairlead/dataplane/sdk"
)

func main() {
	os.Exit(sdk.Serve(fake.NewIn(os.Getenv("FAKE_KERNEL"))))
}
