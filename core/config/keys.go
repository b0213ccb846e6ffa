package config

import (
	"reflect"
	"strings"
)

// Key describes one key of the configuration.
type Key struct {
	Path    string // node.advertise
	Type    string // what is written there: text, duration, ip:port …
	Default string // as written in a file
	Env     string // FAIRLEAD_NODE_ADVERTISE, empty for keys of list entries
	Flag    string // node.advertise, without dashes, empty for keys of list entries
	Alias   string // a second name of the flag, or empty
	Doc     string // one sentence
	Unit    string // what a number counts, or empty
	Enum    []string
	Live    bool // a reload applies a change without restart

	index []int        // of the field in Config
	typ   reflect.Type // of the field
}

// Keys returns every key in the order of the file. Keys inside the entries of
// lists are not among them; see [EntryKeys].
func Keys() []Key {
	return collectKeys(reflect.ValueOf(Defaults()).Elem(), "", nil)
}

// EntryKeys returns the keys inside the entries of raft.peers and services,
// with paths such as services[].port. They have no variable and no flag.
func EntryKeys() []Key {
	var keys []Key
	for _, k := range Keys() {
		keys = append(keys, entryKeys(k.typ, k.Path)...)
	}
	return keys
}

func entryKeys(list reflect.Type, path string) []Key {
	if !isStructList(list) {
		return nil
	}
	var keys []Key
	for _, k := range collectKeys(newEntry(list.Elem()), path+"[].", nil) {
		k.Env, k.Flag = "", ""
		keys = append(keys, k)
		keys = append(keys, entryKeys(k.typ, k.Path)...)
	}
	return keys
}

func collectKeys(section reflect.Value, prefix string, index []int) []Key {
	var keys []Key
	for i := range section.NumField() {
		f := section.Type().Field(i)
		at := append(append([]int{}, index...), i)
		if sub, ok := f.Tag.Lookup("section"); ok {
			keys = append(keys, collectKeys(section.Field(i), prefix+sub, at)...)
			continue
		}
		keys = append(keys, newKey(f, section.Field(i), prefix, at))
	}
	return keys
}

func newKey(f reflect.StructField, value reflect.Value, prefix string, index []int) Key {
	path := prefix + f.Tag.Get("key")
	def, ok := f.Tag.Lookup("default")
	if !ok {
		def = textOf(value)
	}
	k := Key{
		Path:    path,
		Type:    typeName(f.Type),
		Default: def,
		Env:     envName(path),
		Flag:    path,
		Alias:   f.Tag.Get("alias"),
		Doc:     f.Tag.Get("doc"),
		Unit:    f.Tag.Get("unit"),
		Live:    f.Tag.Get("live") == "true",
		index:   index,
		typ:     f.Type,
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		k.Enum = strings.Split(enum, ",")
		k.Type = strings.Join(k.Enum, ", ")
	}
	return k
}

// field is the value of the key in c.
func (k Key) field(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(k.index)
}

// isText says whether the key's text is YAML (or JSON) rather than one value or
// a comma-separated list.
func (k Key) isText() bool { return isStructList(k.typ) || k.typ.Kind() == reflect.Map }

// envPrefix starts the name of every variable that Fairlead reads.
const envPrefix = "FAIRLEAD_"

func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}
