package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
)

const (
	pluginPrefix = envPrefix + "PLUGIN_"
	l7Prefix     = envPrefix + "L7_"
)

// reservedVariables are read by other parts of Fairlead and are no keys.
func reservedVariables() []string {
	return []string{"FAIRLEAD_API", "FAIRLEAD_API_CACERT", "FAIRLEAD_API_CERT", "FAIRLEAD_API_KEY", "FAIRLEAD_PLUGIN_DIRS", "FAIRLEAD_BIN", "FAIRLEAD_TEST_SCALE"}
}

// loadEnviron reads the FAIRLEAD_* variables, keys before plugins' settings,
// because the keys say which plugins there are.
func (l *loader) loadEnviron(environ []string) {
	vars := map[string]string{}
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, envPrefix) {
			vars[name] = value
		}
	}
	for _, name := range reservedVariables() {
		delete(vars, name)
	}
	known := reservedVariables()
	for _, k := range l.keys {
		known = append(known, k.Env)
		if value, ok := vars[k.Env]; ok {
			l.setText(k, value, Origin{Layer: LayerEnv, Name: k.Env})
			delete(vars, k.Env)
		}
	}
	for _, name := range sortedNames(vars) {
		origin := Origin{Layer: LayerEnv, Name: name}
		switch {
		case strings.HasPrefix(name, pluginPrefix):
			l.setPluginVariable(name[len(pluginPrefix):], vars[name], origin)
		case strings.HasPrefix(name, l7Prefix):
			l.failf("", origin, "is for an L7 proxy that runs by itself; for the one of this agent use %sL7_%s", pluginPrefix, name[len(l7Prefix):])
		default:
			l.failf("", origin, "unknown variable; unset it, or correct its name%s", suggestVariable(name, known))
		}
	}
}

// suggestVariable compares without the common prefix, which would make every
// two names look alike.
func suggestVariable(name string, known []string) string {
	tails := make([]string, len(known))
	for i, k := range known {
		tails[i] = strings.TrimPrefix(k, envPrefix)
	}
	s := DidYouMean(strings.TrimPrefix(name, envPrefix), tails)
	return strings.Replace(s, "did you mean ", "did you mean "+envPrefix, 1)
}

// setText gives a key the value that a variable or a flag holds as text.
//
// The parsing is caarlos0/env's, for one key at a time with an explicit
// environment of that one entry, because of what a pass over all would do: it
// treats a set but empty variable as unset (here a written value counts), its
// defaults would overwrite the file's values, its errors name the field but not
// the variable, and it says nothing about unknown names. Lists of entries and
// plugin settings are YAML text instead of its NAME_0_FIELD scheme.
func (l *loader) setText(k Key, text string, origin Origin) {
	field := k.field(l.cfg)
	if k.isText() {
		l.setYAML(k, text, origin)
		return
	}
	why := badText(text)
	if isScalarList(k.typ) {
		text = strings.Join(splitList(text), ",")
	}
	if why == "" {
		why = notInEnum(text, strings.Join(k.Enum, ","))
	}
	switch {
	case why != "":
	case text == "":
		why = setEmpty(field)
	default:
		why = parseOne(l.cfg, k, text)
	}
	l.origins.forget(k.Path)
	l.origins[k.Path] = origin
	if why != "" {
		l.failf(k.Path, origin, "%s", why)
	}
}

// parseOne stores non-empty text in the key's field, or says why it cannot.
func parseOne(cfg *Config, k Key, text string) (why string) {
	err := env.ParseWithOptions(cfg, env.Options{
		TagName:       "key",
		PrefixTagName: "section",
		Environment:   map[string]string{k.Path: text},
	})
	if err == nil {
		return ""
	}
	var cause env.ParseError
	if !errors.As(err, &cause) {
		return err.Error()
	}
	element := k.typ
	if isScalarList(element) {
		element = element.Elem()
	}
	return fmt.Sprintf("is %s; %s", quote(text), reason(element, cause.Err))
}

// setEmpty stores the value that the empty text means, or says that it means none.
func setEmpty(v reflect.Value) (why string) {
	if u, ok := textTarget(v); ok {
		if err := u.UnmarshalText(nil); err != nil {
			return "is empty; " + reason(v.Type(), err)
		}
		return ""
	}
	switch {
	case v.Kind() == reflect.String:
		v.SetString("")
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	default:
		return "is empty; " + expected(v.Type()) + ", or nothing at all to have the default"
	}
	return ""
}

// setYAML reads a list of entries, or settings of plugins, from YAML or JSON text.
func (l *loader) setYAML(k Key, text string, origin Origin) {
	root, bad := parseYAML([]byte(text), origin)
	if bad != nil {
		bad.Key = k.Path
		l.fail(bad)
		return
	}
	d := decoder{loader: l, origin: origin}
	if root != nil {
		d.leaf(root, field{value: k.field(l.cfg)}, k.Path)
		return
	}
	if k.typ.Kind() == reflect.Slice {
		setEmpty(k.field(l.cfg))
		l.origins.forget(k.Path)
	}
	l.origins[k.Path] = origin
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
