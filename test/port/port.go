// Package port picks addresses of loopback for tests that have to name one before
// anybody listens there, or while nobody does, as between two lives of a server.
//
// What the kernel gives who listens on port 0 is no such address: once it is free
// again, the kernel gives it to the next one of whichever test runs at the same time.
// So these ports are below all that the kernel gives.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// lowest is above the ports of services that a machine may have.
const lowest = 10_000

// tries bounds the search.
const tries = 100

// Free is [Pick] for a test.
func Free(t testing.TB) string {
	t.Helper()
	address, err := Pick()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// Pick returns an address of 127.0.0.1, IP:PORT, on which nobody listens and which
// the kernel gives nobody who does not ask for it.
func Pick() (string, error) {
	beyond, err := given()
	if err != nil {
		return "", err
	}
	for range tries {
		address := fmt.Sprint("127.0.0.1:", lowest+rand.IntN(max(1, beyond-lowest)))
		if l, err := net.Listen("tcp", address); err == nil {
			return address, l.Close()
		}
	}
	return "", fmt.Errorf("port: none of %d ports from %d to %d is free", tries, lowest, beyond-1)
}

// given is the first port that the kernel gives.
func given() (first int, err error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(file)
	if err == nil {
		_, err = fmt.Sscan(string(text), &first)
	}
	if err != nil {
		return 0, fmt.Errorf("port: %w", err)
	}
	if first < lowest+1000 {
		return 0, fmt.Errorf("port: %s begins with %d: set it above %d, as the kernel does", file, first, lowest+1000)
	}
	return first, nil
}
