package ebpf

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/test/netns"
)

// TestMain gives the tests a network, a BPF file system and a cgroup of their own.
func TestMain(m *testing.M) {
	if os.Getenv(probing) != "" {
		os.Exit(printReport())
	}
	os.Exit(netns.Main(m))
}
