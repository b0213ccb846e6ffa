// Command l7peer is what the benchmark of the HTTP proxy needs around proxies: a
// backend, and a proxy that is nothing but httputil.ReverseProxy.
//
//	l7peer backend ADDRESS
//	l7peer proxy ADDRESS BACKEND
package main

import (
	"fmt"
	"os"
)

func main() {
	args := os.Args[1:]
	var err error
	switch {
	case len(args) == 2 && args[0] == "backend":
		err = serveBackend(args[1])
	case len(args) == 3 && args[0] == "proxy":
		err = serveProxy(args[1], args[2])
	default:
		err = fmt.Errorf("arguments %q: want backend ADDRESS, or proxy ADDRESS BACKEND", args)
	}
	fmt.Fprintf(os.Stderr, "l7peer: %v\n", err)
	os.Exit(1)
}
