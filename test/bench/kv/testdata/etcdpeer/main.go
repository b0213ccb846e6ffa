// Command etcdpeer is etcd of the version that its go.mod names, unchanged, with
// etcd's own flags. The benchmark of the store runs it beside the agent.
//
// It has a go.mod of its own, so that what etcd is built from is no dependency of
// anything else here: `go install` refuses etcd's own, as it replaces modules.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
