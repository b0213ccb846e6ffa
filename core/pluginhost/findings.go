package pluginhost

import (
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// findings turns what a schema says against the settings of a plugin into one
// error for each key.
func (s Settings) findings(name string, err error) error {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		return fmt.Errorf("pluginhost: plugins.%s: %w", name, err)
	}
	english := message.NewPrinter(language.English)
	var errs []error
	var walk func(e *jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		for _, c := range e.Causes {
			walk(c)
		}
		if len(e.Causes) > 0 {
			return
		}
		at := strings.Join(e.InstanceLocation, ".")
		switch k := e.ErrorKind.(type) {
		case *kind.AdditionalProperties:
			for _, p := range k.Properties {
				errs = append(errs, s.problem(name, under(at, p), "is not a setting of this plugin: remove it"))
			}
		case *kind.Required:
			for _, p := range k.Missing {
				errs = append(errs, s.problem(name, under(at, p), "is missing: the plugin needs it"))
			}
		default:
			errs = append(errs, s.problem(name, at, "is wrong: "+k.LocalizedString(english)))
		}
	}
	walk(invalid)
	return errors.Join(errs...)
}

func under(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}
