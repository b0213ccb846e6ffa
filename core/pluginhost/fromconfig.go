package pluginhost

import (
	"path/filepath"

	"github.com/fairlead/fairlead/core/config"
)

// WishOf reads the key `dataplane`.
func WishOf(cfg *config.Config, origins config.Origins) Wish {
	return Wish{Names: cfg.Dataplane, Written: origins.Of("dataplane").Layer != config.LayerDefault}
}

// SettingsOf reads the section `plugins`.
func SettingsOf(cfg *config.Config, origins config.Origins) map[string]Settings {
	out := map[string]Settings{}
	for name, values := range cfg.Plugins {
		of := func(key string) config.Origin { return origins.Of("plugins." + name + "." + key) }
		out[name] = Settings{
			Values: values,
			Origin: func(key string) string { return of(key).String() },
			// Variables that hold YAML for all plugins have types.
			Text: func(key string) bool {
				o := of(key)
				return o.Layer == config.LayerEnv && o.Name != "FAIRLEAD_PLUGINS"
			},
		}
	}
	return out
}

// SearchOf returns where an agent with this environment and this program looks
// for plugins: FAIRLEAD_PLUGIN_DIRS, separated by colons, then beside the
// program.
func SearchOf(environ []string, binary string) Search {
	dirs, _ := lookup(environ, "FAIRLEAD_PLUGIN_DIRS")
	return Search{Dirs: filepath.SplitList(dirs), Binary: binary}
}
