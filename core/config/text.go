package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// textOf is the value as a flag, a variable or a listing shows it.
func textOf(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return formatDuration(x)
	case Plugins:
		return string(compactJSON(nodeOf(v)))
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	if isStructList(v.Type()) {
		return string(compactJSON(nodeOf(v)))
	}
	if v.Kind() == reflect.Slice {
		items := make([]string, v.Len())
		for i := range items {
			items[i] = textOf(v.Index(i))
		}
		return strings.Join(items, ",")
	}
	return fmt.Sprint(v.Interface())
}

// formatDuration is d without the zero parts that String appends: 1m, not 1m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
