package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// decoder writes YAML nodes into the configuration. It is stricter than the
// YAML package's own decoder: it knows the keys, refuses a key written twice,
// and remembers the line of every value.
type decoder struct {
	*loader
	origin Origin // of the text; a node adds its position if it is a file
}

// field is a settable part of the configuration with its tags.
type field struct {
	value reflect.Value
	tag   reflect.StructTag
}

func (d *decoder) root() reflect.Value { return reflect.ValueOf(d.cfg).Elem() }

func (d *decoder) at(n *yaml.Node) Origin {
	o := d.origin
	if o.Layer == LayerFile {
		o.Line, o.Column = n.Line, n.Column
	}
	return o
}

// section decodes a mapping into a struct whose keys have paths prefix + name.
func (d *decoder) section(n *yaml.Node, v reflect.Value, prefix string) {
	fields, names := map[string]field{}, []string{}
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		name := tag.Get("key")
		if name == "" {
			name = strings.TrimSuffix(tag.Get("section"), ".")
		}
		fields[name] = field{v.Field(i), tag}
		names = append(names, name)
	}
	d.pairs(n, strings.TrimSuffix(prefix, "."), v.Type(), func(name string, key, value *yaml.Node) {
		f, ok := fields[name]
		switch {
		case !ok && d.full():
			d.untold++ // a suggestion takes time
		case !ok:
			d.failf(prefix+printable(name), d.at(key), "unknown key%s", d.suggestKey(name, prefix, names))
		case f.tag.Get("key") != "":
			d.leaf(value, f, prefix+name)
		default:
			d.section(value, f.value, prefix+name+".")
		}
	})
}

// suggestKey looks among the section's own keys first, then for a key of that
// name elsewhere: data_dir at the top is node.data_dir.
func (d *decoder) suggestKey(name, prefix string, siblings []string) string {
	if s := DidYouMean(name, siblings); s != "" {
		return strings.Replace(s, "did you mean ", "did you mean "+prefix, 1)
	}
	for _, k := range d.keys {
		if last := k.Path[strings.LastIndex(k.Path, ".")+1:]; plainName(last) == plainName(name) {
			return "; did you mean " + k.Path + "?"
		}
	}
	return "; known here: " + strings.Join(siblings, ", ")
}

// pairs calls visit for each key of a mapping. A section without any key (null)
// is empty, not an error: all of its lines may be comments.
func (d *decoder) pairs(n *yaml.Node, path string, t reflect.Type, visit func(name string, key, value *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.wrongType(n, t, path)
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode || key.Tag == "!!merge" {
			d.failf(path, d.at(key), "keys are plain names here; aliases and merge keys are not supported, write the values out")
			continue
		}
		if line, dup := lines[key.Value]; dup {
			d.failf(join(path, printable(key.Value)), d.at(key), "written twice, first on line %d; keep one", line)
			continue
		}
		lines[key.Value] = key.Line
		visit(key.Value, key, value)
	}
}

func (d *decoder) leaf(n *yaml.Node, f field, path string) {
	t := f.value.Type()
	switch {
	case t == reflect.TypeFor[Plugins]():
		d.plugins(n)
		return
	case t == reflect.TypeFor[map[string]string]():
		d.texts(n, f.value, path)
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		if _, again := d.origins[path]; again {
			d.origins.forget(path)
		}
		d.list(n, f.value, path)
	case n.Kind == yaml.ScalarNode && (t.Kind() != reflect.Slice || isTextType(t)):
		d.scalar(n, f.value, f.tag.Get("enum"), path)
	default:
		d.wrongType(n, t, path)
	}
	d.origins[path] = d.at(n)
}

func (d *decoder) list(n *yaml.Node, v reflect.Value, path string) {
	entries := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	for i, item := range n.Content {
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		entry := newEntry(v.Type().Elem())
		d.origins[itemPath] = d.at(item)
		switch {
		case isStructList(v.Type()) && isNull(item):
			d.wrongType(item, entry.Type(), itemPath)
		case isStructList(v.Type()):
			d.section(item, entry, itemPath+".")
			if c, ok := entry.Addr().Interface().(deriver); ok {
				c.derive()
			}
		default:
			d.scalar(item, entry, "", itemPath)
		}
		entries = reflect.Append(entries, entry)
	}
	v.Set(entries)
}

// texts decodes a mapping of names to texts.
func (d *decoder) texts(n *yaml.Node, v reflect.Value, path string) {
	m := map[string]string{}
	d.pairs(n, path, v.Type(), func(name string, _, value *yaml.Node) {
		text := reflect.New(v.Type().Elem()).Elem()
		d.scalar(value, text, "", join(path, printable(name)))
		m[name] = text.String()
	})
	v.Set(reflect.ValueOf(m))
}

// scalar decodes one value. The YAML tag decides between text and number:
// "7" in quotes is not a number and yes is not a bool.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, enum, path string) {
	if n.Kind != yaml.ScalarNode || isNull(n) || !strings.HasPrefix(n.Tag, "!!") || n.Tag == "!!binary" {
		d.wrongType(n, v.Type(), path)
		return
	}
	if why := badText(n.Value); why != "" {
		d.failf(path, d.at(n), "%s", why)
		return
	}
	if u, ok := textTarget(v); ok {
		if err := u.UnmarshalText([]byte(n.Value)); err != nil {
			d.failf(path, d.at(n), "is %s; %s", quote(n.Value), reason(v.Type(), err))
		}
		return
	}
	ok := false
	switch v.Interface().(type) {
	case time.Duration:
		dur, err := time.ParseDuration(n.Value)
		ok = err == nil
		v.SetInt(int64(dur))
	case string:
		if why := notInEnum(n.Value, enum); why != "" {
			d.failf(path, d.at(n), "%s", why)
			return
		}
		ok = n.Tag != "!!bool"
		v.SetString(n.Value)
	case bool:
		ok = n.Tag == "!!bool"
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case int:
		i, err := strconv.ParseInt(n.Value, 10, 32)
		ok = err == nil && n.Tag == "!!int"
		v.SetInt(i)
	case uint16:
		u, err := strconv.ParseUint(n.Value, 10, 16)
		ok = err == nil && n.Tag == "!!int"
		v.SetUint(u)
	}
	if !ok {
		d.wrongType(n, v.Type(), path)
	}
}

// wrongType reports a value of another shape than t.
func (d *decoder) wrongType(n *yaml.Node, t reflect.Type, path string) {
	what := ""
	switch {
	case n.Kind == yaml.AliasNode:
		d.failf(path, d.at(n), "aliases and anchors are not supported; write the value out")
		return
	case n.Kind == yaml.MappingNode:
		what = "is a mapping"
	case n.Kind == yaml.SequenceNode:
		what = "is a list"
	case isNull(n):
		what = "has no value"
	default:
		what = "is " + quote(n.Value)
	}
	hint := ""
	switch {
	case isNull(n):
		hint = "; write a value or remove the line"
	case n.Kind == yaml.ScalarNode && t.Kind() == reflect.String:
		hint = ", so put it in quotes"
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 && t.Kind() != reflect.Slice:
		hint = " without quotes"
	}
	d.failf(path, d.at(n), "%s; %s%s", what, expected(t), hint)
}

// reason explains why text was refused: by our own types in their words, by
// others in ours.
func reason(t reflect.Type, err error) string {
	if t.PkgPath() == reflect.TypeFor[Listen]().PkgPath() {
		return err.Error()
	}
	return expected(t)
}

// notInEnum says why word is not allowed by a comma-separated enum tag.
func notInEnum(word, enum string) string {
	if enum == "" {
		return ""
	}
	words := strings.Split(enum, ",")
	if slices.Contains(words, word) {
		return ""
	}
	return fmt.Sprintf("is %s; expected %s%s", quote(word), strings.Join(words, ", "), DidYouMean(word, words))
}

// badText refuses what cannot be a name, a path or an address and would garble
// a log or a terminal.
func badText(s string) string {
	if why := notUTF8(s); why != "" {
		return why
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return fmt.Sprintf("holds the control character %q at byte %d; remove it", s[i], i)
	}
	return ""
}

// notUTF8 refuses what a variable or a flag can hold, but neither YAML nor JSON.
func notUTF8(s string) string {
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") {
			return fmt.Sprintf("is not UTF-8 from byte %d on; write it in UTF-8", i)
		}
	}
	return ""
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// maxQuoted bounds how much of a wrong value an error repeats.
const maxQuoted = 64

func quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "…"
	}
	return strconv.Quote(s)
}

// printable is an unknown name as an error may show it.
func printable(name string) string {
	if q := quote(name); q != `"`+name+`"` || name == "" {
		return q
	}
	return name
}
