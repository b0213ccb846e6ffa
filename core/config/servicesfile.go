package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// ParseServices reads one file of services_dir, or what a client registers:
// YAML or JSON text that is one service, or has a list of them under services.
// Name is what errors call it. A text without any key has no service. The error joins
// one [Error] per finding.
func ParseServices(name string, text []byte) ([]Service, Origins, error) {
	l := newLoader()
	origin := Origin{Layer: LayerFile, Name: name}
	root, bad := parseYAML(text, origin)
	if bad != nil {
		return nil, nil, bad
	}
	d := decoder{loader: l, origin: origin}
	prefix := ""
	switch {
	case root == nil || isNull(root):
	case hasKey(root, "services"):
		prefix = "services"
		d.pairs(root, "", reflect.TypeFor[Service](), func(name string, key, value *yaml.Node) {
			if name != prefix {
				d.failf(printable(name), d.at(key), "stands beside services; a file is one service, or only a list of them under services")
				return
			}
			d.leaf(value, field{value: reflect.ValueOf(&l.cfg.Services).Elem()}, prefix)
		})
	default:
		entry := newEntry(reflect.TypeFor[Service]())
		d.section(root, entry, "")
		l.cfg.Services = append(l.cfg.Services, entry.Interface().(Service))
	}
	v := validator{cfg: l.cfg, origins: l.origins, broken: l.broken}
	if prefix != "" {
		v.services()
	} else if len(l.cfg.Services) == 1 && len(l.errs) == 0 {
		v.service("", l.cfg.Services[0], newTaken())
	}
	for _, err := range v.errs {
		var e *Error
		if errors.As(err, &e) && e.Origin.Layer == LayerDefault {
			e.Origin = origin // of what is missing there is no line
		}
	}
	if errs := l.findings(v.errs); len(errs) != 0 {
		return nil, nil, errors.Join(errs...)
	}
	return l.cfg.Services, l.origins, nil
}

// ServicesJSON is the text from which ParseServices reads these services, as
// one indented JSON object.
func ServicesJSON(services []Service) []byte {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{textNode("services"), nodeOf(reflect.ValueOf(services))}}
	var out bytes.Buffer
	_ = json.Indent(&out, compactJSON(n), "", "  ") // the text is our own and well formed
	return append(out.Bytes(), '\n')
}

func hasKey(n *yaml.Node, name string) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}
