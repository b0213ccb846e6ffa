package conf

import (
	"flag"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
)

const (
	prefix         = "FAIRLEAD_L7_"
	variableConfig = prefix + "CONFIG"
)

// variables returns those of the proxy. One that no key has is an error: it is
// mistyped.
func (l *loader) variables() map[string]string {
	out := map[string]string{}
	for _, entry := range l.in.Environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		if key := keyOfVariable(name); name != variableConfig && !slices.Contains(names(), key) {
			l.failf(name, "this variable is not known%s", settings.DidYouMean(name, allVariables()))
			continue
		}
		out[name] = value
	}
	return out
}

func keyOfVariable(name string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// Variable is the name of the variable of a key.
func Variable(key string) string { return prefix + strings.ToUpper(key) }

func allVariables() []string {
	out := []string{variableConfig}
	for _, key := range names() {
		out = append(out, Variable(key))
	}
	return out
}

func mapsKeys(m map[string]string) iter.Seq[string] { return maps.Keys(m) }

// flags are what was said on the command line, in the order of the keys.
type flags struct {
	config string
	values []flagValue
}

type flagValue struct{ key, value string }

// parseFlags reads the flags of serve and validate. Each key is one, with
// hyphens or underscores.
func parseFlags(args []string) (*flags, error) {
	f := &flags{}
	set := flag.NewFlagSet("l7", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.Usage = func() {}
	known := []string{"--config"}
	help := false
	set.StringVar(&f.config, "config", "", "")
	set.BoolVar(&help, "help", false, "")
	set.BoolVar(&help, "h", false, "")
	for _, key := range names() {
		name := strings.ReplaceAll(key, "_", "-")
		known = append(known, "--"+name)
		take := func(value string) error {
			f.values = append(f.values, flagValue{key, value})
			return nil
		}
		if k, ok := settings.Find(key); ok && k.IsBool() {
			set.BoolFunc(name, "", take)
		} else {
			set.Func(name, "", take)
		}
	}
	args = slices.Clone(args)
	for i, a := range args {
		if a == "--" || !strings.HasPrefix(a, "-") {
			continue
		}
		name, value, has := strings.Cut(a, "=")
		args[i] = strings.ReplaceAll(name, "_", "-")
		if bare := "--" + strings.TrimLeft(args[i], "-"); !slices.Contains(known, bare) && bare != "--help" && bare != "--h" {
			return nil, fmt.Errorf("%w: flag %s is not known%s", ErrUsage, name, settings.DidYouMean(bare, known))
		}
		if has {
			args[i] += "=" + value
		}
	}
	if err := set.Parse(args); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	switch {
	case help:
		return nil, ErrHelp
	case set.NArg() > 0:
		return nil, fmt.Errorf("%w: argument %q is not known: settings are flags", ErrUsage, set.Arg(0))
	}
	return f, nil
}
