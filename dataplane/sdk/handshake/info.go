package handshake

import (
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/fairlead/fairlead/dataplane"
)

// PluginInfo is what `PROVIDER --plugin-info` prints, as JSON. The call Info
// has to say the same.
type PluginInfo struct {
	Name          string          `json:"name"`
	Version       string          `json:"version"`
	Vendor        string          `json:"vendor,omitempty"`
	Layers        []string        `json:"layers"`
	Scopes        []string        `json:"scopes"`
	ScopeRules    []PluginScopes  `json:"scope_rules,omitempty"`
	Protocol      int             `json:"protocol"`
	ProtocolMinor int             `json:"protocol_minor"`
	ConfigSchema  json.RawMessage `json:"config_schema,omitempty"`
	Limits        *PluginLimits   `json:"limits,omitempty"`
}

// PluginScopes is a dataplane.ScopeRule.
type PluginScopes struct {
	Setting string   `json:"setting"`
	Value   string   `json:"value"`
	Scopes  []string `json:"scopes"`
}

// PluginLimits are those of PluginInfo; 0 is no limit.
type PluginLimits struct {
	Services            int `json:"services,omitempty"`
	Endpoints           int `json:"endpoints,omitempty"`
	EndpointsPerService int `json:"endpoints_per_service,omitempty"`
}

// Describe returns the printed form of i.
func Describe(i dataplane.Info) PluginInfo {
	p := PluginInfo{
		Name: i.Name, Version: i.Version, Vendor: i.Vendor, Layers: []string{}, Scopes: []string{},
		Protocol: ProtocolVersion, ProtocolMinor: ProtocolMinor, ConfigSchema: i.ConfigSchema,
	}
	for _, l := range i.Layers {
		p.Layers = append(p.Layers, l.String())
	}
	for _, s := range i.Scopes {
		p.Scopes = append(p.Scopes, s.String())
	}
	for _, r := range i.ScopeRules {
		rule := PluginScopes{Setting: r.Setting, Value: r.Value, Scopes: []string{}}
		for _, s := range r.Scopes {
			rule.Scopes = append(rule.Scopes, s.String())
		}
		p.ScopeRules = append(p.ScopeRules, rule)
	}
	if i.Limits != (dataplane.Limits{}) {
		p.Limits = &PluginLimits{i.Limits.Services, i.Limits.Endpoints, i.Limits.EndpointsPerService}
	}
	return p
}

var validName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// ValidName reports whether a provider may have this name.
func ValidName(name string) bool { return validName.MatchString(name) }

// CheckInfo returns what is wrong with what a provider says of itself.
func CheckInfo(i dataplane.Info) error {
	switch {
	case !ValidName(i.Name):
		return fmt.Errorf("%w: provider name %q: want a lower-case letter, then at most 31 letters, digits and dashes", dataplane.ErrInvalid, i.Name)
	case i.Version == "":
		return fmt.Errorf("%w: provider %s has no version: set Info.Version", dataplane.ErrInvalid, i.Name)
	case len(i.Layers) == 0:
		return fmt.Errorf("%w: provider %s works on no layer: set Info.Layers", dataplane.ErrInvalid, i.Name)
	case len(i.ConfigSchema) > 0 && !json.Valid(i.ConfigSchema):
		return fmt.Errorf("%w: the configuration schema of provider %s is no JSON", dataplane.ErrInvalid, i.Name)
	}
	for n, r := range i.ScopeRules {
		if r.Setting == "" || len(r.Scopes) == 0 {
			return fmt.Errorf("%w: scope rule %d of provider %s lacks its setting or its scopes", dataplane.ErrInvalid, n, i.Name)
		}
	}
	return nil
}
