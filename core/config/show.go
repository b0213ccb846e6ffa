package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Entry is one line of `config show`.
type Entry struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// mask replaces a secret wherever a configuration is shown.
const mask = "********"

// Show lists every key with its value as text and its origin, in the order of
// the file; each plugin's settings are entries of their own. Secrets are masked.
func (c *Config) Show(origins Origins) []Entry {
	masked := c.Masked()
	var entries []Entry
	for _, k := range Keys() {
		if k.typ == reflect.TypeFor[Plugins]() && len(masked.Plugins) != 0 {
			entries = append(entries, showPlugins(masked.Plugins, origins)...)
			continue
		}
		origin, _ := origins.written(k.Path)
		entries = append(entries, Entry{Key: k.Path, Value: textOf(k.field(masked)), Origin: origin.String()})
	}
	return entries
}

func showPlugins(plugins Plugins, origins Origins) []Entry {
	var entries []Entry
	for _, name := range slices.Sorted(maps.Keys(plugins)) {
		path := "plugins." + name
		if len(plugins[name]) == 0 {
			entries = append(entries, Entry{Key: path, Value: "{}", Origin: origins.Of(path).String()})
		}
		for _, setting := range slices.Sorted(maps.Keys(plugins[name])) {
			at := path + "." + printable(setting)
			entries = append(entries, Entry{Key: at, Value: freeText(plugins[name][setting]), Origin: origins.Of(at).String()})
		}
	}
	return entries
}

func freeText(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	return string(compactJSON(nodeOf(reflect.ValueOf(value))))
}

// Masked is a deep copy in which values that may be secret are replaced by
// asterisks: plugin settings whose name says so, and passwords in the addresses
// of an etcd cluster. Fairlead's own secrets are in files, of which only the
// names are configured.
func (c *Config) Masked() *Config {
	out := c.clone()
	for _, settings := range out.Plugins {
		maskMap(settings)
	}
	for i, endpoint := range out.Store.Endpoints {
		scheme, rest, ok := strings.Cut(endpoint, "://")
		if at := strings.LastIndexByte(rest, '@'); ok && at >= 0 {
			out.Store.Endpoints[i] = scheme + "://" + mask + rest[at:]
		}
	}
	return out
}

func maskMap(m map[string]any) {
	for name, value := range m {
		if isSecretName(name) {
			m[name] = mask
			continue
		}
		maskValue(value)
	}
}

func maskValue(value any) {
	switch v := value.(type) {
	case map[string]any:
		maskMap(v)
	case []any:
		for _, item := range v {
			maskValue(item)
		}
	}
}

// isSecretName errs on the side of hiding: a shown password is worse than a
// hidden timeout. Names of files are no secrets.
func isSecretName(name string) bool {
	plain := plainName(name)
	if strings.HasSuffix(plain, "file") || strings.HasSuffix(plain, "path") {
		return false
	}
	return slices.ContainsFunc([]string{"secret", "password", "passwd", "passphrase", "token", "credential", "apikey", "privatekey"},
		func(word string) bool { return strings.Contains(plain, word) })
}

// clone is a deep copy of what Masked changes; the other slices are shared and
// never written.
func (c *Config) clone() *Config {
	out := *c
	out.Store.Endpoints = slices.Clone(c.Store.Endpoints)
	out.Plugins = make(Plugins, len(c.Plugins))
	for name, settings := range c.Plugins {
		out.Plugins[name] = cloneFree(settings).(map[string]any)
	}
	return &out
}

func cloneFree(value any) any {
	switch v := value.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for name, item := range v {
			m[name] = cloneFree(item)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = cloneFree(item)
		}
		return list
	default:
		return v
	}
}

// Changed returns the keys whose values differ, for a reload: those with Live
// can be applied, the others need a restart.
func Changed(before, after *Config) []Key {
	var changed []Key
	for _, k := range Keys() {
		if !reflect.DeepEqual(k.field(before).Interface(), k.field(after).Interface()) {
			changed = append(changed, k)
		}
	}
	return changed
}
