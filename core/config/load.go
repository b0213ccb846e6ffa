package config

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Options are the sources that Load reads. The zero value gives the defaults
// without a host name, which do not validate: a node needs a name.
type Options struct {
	// File is the path of the YAML file; empty reads none.
	File string
	// ReadFile reads it, for instance os.ReadFile.
	ReadFile func(path string) ([]byte, error)
	// Environ holds NAME=value entries, for instance os.Environ(). Names that
	// do not start with FAIRLEAD_ are ignored; of two equal names the last counts.
	Environ []string
	// Flags is a parsed flag set that RegisterFlags was called on, or nil.
	Flags *pflag.FlagSet
	// Hostname is the default of node.name.
	Hostname string
}

// Load merges defaults, file, environment and flags, and validates the result.
// The warnings name keys that were written for parts of Fairlead that this
// version does not have yet, and values that work but are hardly meant. The error joins one [Error] per finding; the
// configuration is nil then.
func Load(o Options) (*Config, Origins, []string, error) {
	l := newLoader()
	if o.File != "" {
		l.loadFile(o)
	}
	l.loadEnviron(o.Environ)
	l.loadFlags(o.Flags)
	l.cfg.derive(l.origins, o.File, o.Hostname)

	v := validator{cfg: l.cfg, origins: l.origins, broken: l.broken}
	v.run()
	if errs := l.findings(v.errs); len(errs) != 0 {
		return nil, nil, nil, errors.Join(errs...)
	}
	return l.cfg, l.origins, append(v.warnings, unbuiltWarnings(l.origins)...), nil
}

// originOf is where a finding is.
func originOf(finding error) Origin {
	var e *Error
	errors.As(finding, &e) // all findings are of that type
	return e.Origin
}

// maxFindings bounds how many findings are told. Who has more corrects those
// first, and a text of nothing but mistakes is neither a long log nor long work.
const maxFindings = 100

// loader collects what the layers say, each over the one before.
type loader struct {
	cfg     *Config
	keys    []Key
	origins Origins
	errs    []error
	untold  int // findings beyond maxFindings
	// broken holds the keys of which a value could not be read. They keep an
	// older value, so rules about them would report consequences, not causes.
	broken map[string]bool
}

func newLoader() *loader {
	return &loader{cfg: Defaults(), keys: Keys(), origins: Origins{}, broken: map[string]bool{}}
}

// failf records a finding about the key at path.
func (l *loader) failf(path string, origin Origin, format string, args ...any) {
	l.fail(&Error{Key: path, Origin: origin, Message: fmt.Sprintf(format, args...)})
}

func (l *loader) fail(e *Error) {
	if l.full() {
		l.untold++
		return
	}
	l.errs = append(l.errs, e)
	l.broken[e.Key] = true
}

// full says that further findings are only counted.
func (l *loader) full() bool { return len(l.errs) >= maxFindings }

// findings are those of the layers and of the rules, as far as they are told, in the
// order in which a reader of the file meets them. The last one counts the others.
func (l *loader) findings(rules []error) []error {
	errs, untold := append(l.errs, rules...), l.untold
	slices.SortStableFunc(errs, func(a, b error) int { return originOf(a).compare(originOf(b)) })
	if n := len(errs) - maxFindings; n > 0 {
		errs, untold = errs[:maxFindings], untold+n
	}
	if untold == 0 {
		return errs
	}
	last := originOf(errs[len(errs)-1])
	where := Origin{Layer: last.Layer, Name: last.Name}
	return append(errs, &Error{Origin: where, Message: fmt.Sprintf("%d more findings are not shown; correct these first", untold)})
}
