package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// Problem is what is wrong with one key.
type Problem struct {
	Key     string
	Message string // with the value, and the remedy
}

// Error is "KEY MESSAGE".
func (p *Problem) Error() string { return p.Key + " " + p.Message }

// Text is a value for which the source has no type: that of a variable or of a
// flag. It is read as the key's type.
type Text string

// Set writes a value into s. It is Text, or what has a type in JSON and YAML:
// string, bool, json.Number or []any. The error is a *Problem.
func (k Key) Set(s *Settings, value any) error {
	if err := k.set(k.at(s), value); err != nil {
		return &Problem{Key: k.Name, Message: err.Error()}
	}
	return nil
}

func (k Key) set(at, value any) error {
	switch k.kind {
	case kindBool:
		return setBool(at.(*bool), value)
	case kindInt:
		return k.setInt(at.(*int), value)
	case kindDuration:
		return k.setDuration(at.(*time.Duration), value)
	case kindList:
		list, err := texts(value)
		if err != nil {
			return err
		}
		return setList(at, list)
	}
	text, ok := textOf(value)
	if !ok {
		return fmt.Errorf("is %v: want text", value)
	}
	*at.(*string) = text
	return nil
}

func setBool(at *bool, value any) error {
	b, ok := value.(bool)
	if t, isText := value.(Text); isText {
		var err error
		b, err = strconv.ParseBool(string(t))
		ok = err == nil
	}
	if !ok {
		return fmt.Errorf("is %v: want true or false", value)
	}
	*at = b
	return nil
}

func (k Key) setInt(at *int, value any) error {
	var text string
	switch v := value.(type) {
	case json.Number:
		text = v.String()
	case Text:
		text = string(v)
	default:
		return fmt.Errorf("is %v: want a number", value)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < k.min || n > k.max {
		return fmt.Errorf("is %s: want a whole number from %d to %d", text, k.min, k.max)
	}
	*at = int(n)
	return nil
}

func (k Key) setDuration(at *time.Duration, value any) error {
	text, ok := textOf(value)
	if n, isNumber := value.(json.Number); isNumber && n == "0" {
		text, ok = "0s", true
	}
	if !ok {
		return fmt.Errorf("is %v: want a duration with its unit, such as 10s", value)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("is %q: want a duration such as 10s", text)
	}
	if d < time.Duration(k.min) || d > time.Duration(k.max) {
		return fmt.Errorf("is %s: want %v to %v", text, time.Duration(k.min), time.Duration(k.max))
	}
	*at = d
	return nil
}

func setList(at any, list []string) error {
	switch at := at.(type) {
	case *[]string:
		*at = list
	case *[]netip.Prefix:
		var prefixes []netip.Prefix
		for _, text := range list {
			p, err := parsePrefix(text)
			if err != nil {
				return err
			}
			prefixes = append(prefixes, p)
		}
		*at = prefixes
	}
	return nil
}

// parsePrefix reads a network, or an address, which is a network of one.
func parsePrefix(text string) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("has %q: want an IP address or a network such as 10.0.0.0/8", text)
	}
	return netip.PrefixFrom(a, a.BitLen()), nil
}

func textOf(value any) (string, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case Text:
		return string(v), true
	}
	return "", false
}

// texts reads a list, or the items of one text with commas between them.
func texts(value any) ([]string, error) {
	if list, ok := value.([]any); ok {
		var out []string
		for _, item := range list {
			text, ok := item.(string)
			if !ok {
				return nil, fmt.Errorf("has %v: want a list of texts", item)
			}
			out = append(out, text)
		}
		return out, nil
	}
	text, ok := textOf(value)
	if !ok {
		return nil, errors.New("is neither a text nor a list of texts")
	}
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out, nil
}
