package config_test

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/fairlead/fairlead/core/config"
)

// A later layer wins, and every value knows where it was written.
func ExampleLoad() {
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config.RegisterFlags(flags)
	if err := flags.Parse([]string{"--log.level=debug"}); err != nil {
		fmt.Println(err)
		return
	}
	cfg, origins, _, err := config.Load(config.Options{
		File:     "fairlead.yaml",
		ReadFile: func(string) ([]byte, error) { return []byte("cluster:\n  name: prod\nlog:\n  level: warn\n"), nil },
		Environ:  []string{"FAIRLEAD_NODE_NAME=n1"},
		Flags:    flags,
		Hostname: "localhost",
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, e := range cfg.Show(origins) {
		if e.Origin != "default" {
			fmt.Printf("%s = %s (%s)\n", e.Key, e.Value, e.Origin)
		}
	}
	// Output:
	// node.name = n1 (env FAIRLEAD_NODE_NAME)
	// cluster.name = prod (fairlead.yaml:2)
	// log.level = debug (flag --log.level)
}

// All findings are reported at once.
func ExampleLoad_findings() {
	_, _, _, err := config.Load(config.Options{
		File:     "fairlead.yaml",
		ReadFile: func(string) ([]byte, error) { return []byte("gosip:\n  bind: x\nnode:\n  in_memory: yes\n"), nil },
		Environ:  []string{"FAIRLEAD_CLUSTER_JION=10.9.0.2"},
		Hostname: "n1",
	})
	fmt.Println(err)
	// Output:
	// config: fairlead.yaml:1:1: gosip: unknown key; did you mean gossip?
	// config: fairlead.yaml:4:14: node.in_memory: is "yes"; expected true or false
	// config: env FAIRLEAD_CLUSTER_JION: unknown variable; unset it, or correct its name; did you mean FAIRLEAD_CLUSTER_JOIN?
}
