package iptables

import (
	"os"
	"testing"

	"github.com/fairlead/fairlead/test/netns"
)

// TestMain gives the tests a network of their own.
func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }
