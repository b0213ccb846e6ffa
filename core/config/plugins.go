package config

import (
	"math"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// plugins decodes the free-form settings. They merge key by key into what an
// older layer says of the same plugin.
func (d *decoder) plugins(n *yaml.Node) {
	d.pairs(n, "plugins", reflect.TypeFor[Plugins](), func(name string, key, value *yaml.Node) {
		path := "plugins." + printable(name)
		if !isPluginName(name) {
			d.failf(path, d.at(key), "a plugin's name has 1 to 63 lower-case letters, digits and hyphens, as in fairlead-dataplane-NAME")
			return
		}
		settings := d.cfg.Plugins[name]
		if settings == nil {
			settings = map[string]any{}
			d.cfg.Plugins[name] = settings
		}
		d.origins[path] = d.at(key)
		d.pairs(value, path, reflect.TypeFor[Plugins](), func(setting string, _, value *yaml.Node) {
			at := join(path, printable(setting))
			d.origins[at] = d.at(value)
			settings[setting] = d.free(value, at)
		})
	})
}

// free turns a node into plain Go values, without the sharing that aliases
// would bring and without numbers that JSON cannot carry to the plugin.
func (d *decoder) free(n *yaml.Node, path string) any {
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		d.pairs(n, path, reflect.TypeFor[Plugins](), func(name string, _, value *yaml.Node) {
			m[name] = d.free(value, join(path, printable(name)))
		})
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			list = append(list, d.free(item, path))
		}
		return list
	case yaml.ScalarNode:
		return d.freeScalar(n, path)
	default:
		d.wrongType(n, reflect.TypeFor[string](), path)
		return nil
	}
}

func (d *decoder) freeScalar(n *yaml.Node, path string) any {
	var value any
	switch n.Tag {
	case "!!str", "!!timestamp":
		return n.Value
	case "!!null":
		d.wrongType(n, reflect.TypeFor[string](), path)
		return nil
	case "!!bool", "!!int", "!!float":
		if err := n.Decode(&value); err != nil {
			d.fail(&Error{Key: path, Origin: d.at(n), Message: "is " + quote(n.Value) + ", which YAML cannot read; put it in quotes", Err: err})
			return nil
		}
	}
	switch v := value.(type) {
	case bool, int:
		return v
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	}
	d.failf(path, d.at(n), "is %s; expected text, a number of 64 bits, true or false", quote(n.Value))
	return nil
}

// setPluginVariable stores FAIRLEAD_PLUGIN_<NAME>_<KEY>. A plugin's name may
// hold hyphens, which a variable writes as underscores, so the longest name that
// is configured or selected wins; else the name ends at the first underscore.
// The value stays text: only the plugin's schema knows its type.
func (l *loader) setPluginVariable(rest, text string, origin Origin) {
	name, setting, ok := strings.Cut(strings.ToLower(rest), "_")
	for _, known := range l.pluginNames() {
		if tail, found := strings.CutPrefix(strings.ToLower(rest), strings.ReplaceAll(known, "-", "_")+"_"); found {
			name, setting, ok = known, tail, true
			break
		}
	}
	if !ok || setting == "" || !isPluginName(name) {
		l.failf("", origin, "does not name a plugin's setting; the form is FAIRLEAD_PLUGIN_<NAME>_<KEY>, such as FAIRLEAD_PLUGIN_L7_LISTEN")
		return
	}
	if why := notUTF8(text); why != "" {
		l.failf("plugins."+name+"."+setting, origin, "%s", why)
		return
	}
	if l.cfg.Plugins[name] == nil {
		l.cfg.Plugins[name] = map[string]any{}
	}
	l.cfg.Plugins[name][setting] = text
	l.origins["plugins."+name+"."+setting] = origin
}

// pluginNames returns the names that are known, longest first.
func (l *loader) pluginNames() []string {
	names := slices.Clone([]string(l.cfg.Dataplane))
	for name := range l.cfg.Plugins {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return names
}

// isPluginName says whether name can be part of fairlead-dataplane-NAME.
func isPluginName(name string) bool {
	if name == "" || len(name) > 63 || name[0] == '-' {
		return false
	}
	return strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
