package l4

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/test/netns"
)

// TestMain gives the benchmark a network, a BPF file system and a cgroup of its own.
func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }
