package config

import "github.com/spf13/pflag"

// RegisterFlags adds one flag for each key, named by its path, and the aliases.
// The flags hold text; Load gives it its meaning, so that a flag and a variable
// read alike. A list's flag may be repeated.
func RegisterFlags(fs *pflag.FlagSet) {
	for _, k := range Keys() {
		addFlag(fs, k, k.Flag, k.Doc)
		if k.Alias != "" {
			addFlag(fs, k, k.Alias, "Same as --"+k.Flag+".")
		}
	}
}

func addFlag(fs *pflag.FlagSet, k Key, name, usage string) {
	f := fs.VarPF(&textFlag{key: k, text: k.Default}, name, "", usage)
	if k.Type == "bool" {
		f.NoOptDefVal = "true"
	}
}

// textFlag is a flag that keeps what was written.
type textFlag struct {
	key  Key
	text string
	set  bool
}

// Set stores the text, or adds it to that of an earlier flag of the same list.
func (f *textFlag) Set(text string) error {
	if f.set && isScalarList(f.key.typ) {
		text = f.text + "," + text
	}
	f.text, f.set = text, true
	return nil
}

// String is the text, at first the default.
func (f *textFlag) String() string { return f.text }

// Type is the word behind the flag's name in a usage message.
func (f *textFlag) Type() string { return f.key.Type }

// loadFlags reads the flags that were set.
func (l *loader) loadFlags(fs *pflag.FlagSet) {
	if fs == nil {
		return
	}
	for _, k := range l.keys {
		flag, alias := changed(fs, k.Flag), changed(fs, k.Alias)
		switch {
		case flag != nil && alias != nil:
			l.failf(k.Path, Origin{Layer: LayerFlag, Name: k.Alias}, "is the same key as --%s, which is also set; keep one", k.Flag)
		case flag != nil:
			l.setText(k, flag.Value.String(), Origin{Layer: LayerFlag, Name: k.Flag})
		case alias != nil:
			l.setText(k, alias.Value.String(), Origin{Layer: LayerFlag, Name: k.Alias})
		}
	}
}

func changed(fs *pflag.FlagSet, name string) *pflag.Flag {
	if f := fs.Lookup(name); name != "" && f != nil && f.Changed {
		return f
	}
	return nil
}
