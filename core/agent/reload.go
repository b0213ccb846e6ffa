package agent

import (
	"context"
	"maps"
	"strings"

	"github.com/fairlead/fairlead/core/config"
	"github.com/fairlead/fairlead/core/pluginhost"
)

// Results of a reload, the label values of its metric.
const (
	reloadApplied       = "applied"
	reloadRestartNeeded = "restart_needed"
	reloadFailed        = "failed"
)

// keyDataplane is the key that lists the data planes.
const keyDataplane = "dataplane"

// reload reads the configuration again and applies what may change while the
// agent runs. Each other key that differs is named: silence would let an
// operator believe that it holds.
//
// ctx bounds the choice of other data planes; when it ends they stay as they are.
func (a *Agent) reload(ctx context.Context) {
	if a.opts.Reload == nil {
		a.log.Warn("SIGHUP ignored: this agent has no configuration to read again")
		return
	}
	next, err := a.opts.Reload()
	if err != nil {
		a.metrics.reloads.WithLabelValues(reloadFailed).Inc()
		a.log.Error("reload failed, the configuration in force stays", "error", err)
		return
	}
	now := a.settings.Load()
	merged := *now.Config
	result := reloadApplied
	var applied, waiting []string
	failed := func(key string, err error) {
		result = reloadFailed
		waiting = append(waiting, key)
		a.log.Error("reload: a key was not applied", "key", key, "error", err)
	}
	if err := a.rereadSecrets(); err != nil { // the file may be another one under the same name
		failed("cluster.secret_file", err)
	}
	appliers := a.appliers(next.Origins)
	otherPlanes := false
	for _, key := range config.Changed(now.Config, next.Config) {
		if key.Path == keyDataplane {
			otherPlanes = true // last of all: the choice rests on the settings of plugins
			continue
		}
		if apply, ok := appliers[key.Path]; ok {
			if err := apply(&merged, next.Config); err != nil {
				failed(key.Path, err)
				continue
			}
			applied = append(applied, key.Path)
			continue
		}
		if result == reloadApplied {
			result = reloadRestartNeeded
		}
		waiting = append(waiting, key.Path)
		a.log.Warn("reload: this key changes at the next restart only", "key", key.Path)
	}
	a.reconfigurePlugins(&merged, mergeOrigins(now.Origins, next.Origins, waiting))
	if otherPlanes {
		if err := a.switchPlugins(ctx, next); err != nil {
			failed(keyDataplane, err)
		} else {
			merged.Dataplane = next.Config.Dataplane
			applied = append(applied, keyDataplane)
		}
	}
	a.warn(next.Warnings)
	a.metrics.reloads.WithLabelValues(result).Inc()
	a.settings.Store(&Loaded{Config: &merged, Origins: mergeOrigins(now.Origins, next.Origins, waiting), Warnings: next.Warnings})
	a.services.watched.look()
	a.log.Info("reloaded", "result", result, "applied", strings.Join(applied, ","))
}

// appliers holds, by key, how a change takes effect: it also copies the value
// from next, whose origins are given, into the configuration in force.
func (a *Agent) appliers(origins config.Origins) map[string]func(inForce, next *config.Config) error {
	return map[string]func(inForce, next *config.Config) error{
		"log.level": func(inForce, next *config.Config) error {
			if a.opts.Level != nil {
				if err := setLevel(a.opts.Level, next.Log.Level); err != nil {
					return err
				}
			}
			inForce.Log.Level = next.Log.Level
			return nil
		},
		"plugins": func(inForce, next *config.Config) error {
			if err := pluginhost.CheckSettings(pluginhost.SettingsOf(next, nil)); err != nil {
				return err
			}
			inForce.Plugins = next.Plugins // given to the host once all is in force
			return nil
		},
		"services": func(inForce, next *config.Config) error {
			if err := a.services.setConfig(next.Services, origins); err != nil {
				return err
			}
			inForce.Services = next.Services
			return nil
		},
	}
}

// mergeOrigins takes the origins of next, but for keys that wait for a restart:
// there the old ones still tell where the value in force came from.
func mergeOrigins(now, next config.Origins, waiting []string) config.Origins {
	out := maps.Clone(next)
	if out == nil {
		out = config.Origins{}
	}
	for _, key := range waiting {
		maps.DeleteFunc(out, func(path string, _ config.Origin) bool { return within(path, key) })
		for path, origin := range now {
			if within(path, key) {
				out[path] = origin
			}
		}
	}
	return out
}

// within reports whether path is key or an entry of it.
func within(path, key string) bool {
	return path == key || strings.HasPrefix(path, key+".") || strings.HasPrefix(path, key+"[")
}
