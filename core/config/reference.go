package config

import (
	"bytes"
	"fmt"
	"strings"
)

// The lines between which a document holds the generated table.
const (
	tableBegin = "<!-- config:begin -->"
	tableEnd   = "<!-- config:end -->"
)

// MarkdownTable is the table of all keys for README.md: key with flag and
// variable, type, default, meaning.
func MarkdownTable() string {
	var b strings.Builder
	b.WriteString("| key | type | default | variable | flag | meaning |\n|---|---|---|---|---|---|\n")
	for _, k := range Keys() {
		flag := "`--" + k.Flag + "`"
		if k.Alias != "" {
			flag += ", `--" + k.Alias + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s | %s |\n", k.Path, cell(typeCell(k)), cell(defaultCell(k)), k.Env, flag, cell(k.Doc))
	}
	return b.String()
}

// entryTable is the table of the keys inside list entries.
func entryTable() string {
	var b strings.Builder
	b.WriteString("| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, k := range EntryKeys() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Path, cell(typeCell(k)), cell(defaultCell(k)), cell(k.Doc))
	}
	return b.String()
}

func typeCell(k Key) string {
	if k.Unit != "" {
		return k.Type + " (" + k.Unit + ")"
	}
	return k.Type
}

// defaultCell shows a value as code and a derived default as prose.
func defaultCell(k Key) string {
	switch {
	case k.Default == "" || k.Default == "0":
		return ""
	case strings.Contains(k.Default, " "):
		return k.Default
	default:
		return "`" + k.Default + "`"
	}
}

func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(s)
}

// ReplaceTable returns the document with the table between its marker lines
// renewed. It fails if the document lacks the markers.
func ReplaceTable(document []byte) ([]byte, error) {
	before, rest, okBegin := bytes.Cut(document, []byte(tableBegin))
	_, after, okEnd := bytes.Cut(rest, []byte(tableEnd))
	if !okBegin || !okEnd {
		return nil, fmt.Errorf("config: the document has no lines %s and %s between which the table goes; add them", tableBegin, tableEnd)
	}
	var out bytes.Buffer
	out.Write(before)
	out.WriteString(tableBegin + "\n" + MarkdownTable() + tableEnd)
	out.Write(after)
	return out.Bytes(), nil
}

// Reference is the text of docs/config.md.
func Reference() string {
	head := strings.Replace(referenceHead, "@RESERVED@", "`"+strings.Join(reservedVariables(), "`, `")+"`", 1)
	return head + "\n" + tableBegin + "\n" + MarkdownTable() + tableEnd + "\n" +
		referenceEntries + "\n" + entryTable() + referenceTail
}

const referenceHead = `# Configuration

<!-- Generated from core/config by "go generate ./core/config". Do not edit. -->

An agent starts without any configuration: everything below has a default, and
every default stays on loopback. Values come from four places, later ones win:

1. the defaults,
2. the YAML file given by ` + "`agent --config FILE`" + `, else /etc/fairlead/fairlead.yaml if it exists,
3. variables ` + "`FAIRLEAD_*`" + `,
4. command-line flags.

A written value counts, also ` + "`0`, `false` and `\"\"`" + `. An absent key has its default.
` + "`fairlead config show --origin`" + ` prints each value with the place it came from, and
` + "`fairlead config validate`" + ` checks a file without starting anything.

The file is strict: an unknown or repeated key, a value of another type, a second
document, an alias or an anchor is an error that names file, line and column. So is
an unknown ` + "`FAIRLEAD_*`" + ` variable, except those that other parts of Fairlead read:
@RESERVED@.

` + "`off`" + ` disables a listener. Port 0 asks for any free port, which is printed at the
start. Durations carry their unit: ` + "`100ms`, `2s`, `1m`" + `. In variables and flags a list is
separated by commas, and a flag of a list may be repeated. A complete example is
[fairlead.example.yaml](fairlead.example.yaml).

## Keys
`

const referenceEntries = `
## Keys inside list entries

The entries of ` + "`raft.peers` and `services`" + ` have keys of their own. As a flag or a
variable such a list is YAML or JSON text and replaces the file's list:
` + "`FAIRLEAD_RAFT_PEERS='[{name: n1, addr: \"10.9.0.1:7401\"}]'`" + `.
`

const referenceTail = `
## Plugin settings

Below ` + "`plugins`" + ` each plugin has its own keys, which the plugin checks. One of them as a
variable is ` + "`FAIRLEAD_PLUGIN_<NAME>_<KEY>`" + `, hyphens of the name written as underscores:
` + "`FAIRLEAD_PLUGIN_L7_LISTEN=127.0.0.1:8080`" + `. Such a value is text, and is read as the type that
the plugin's schema wants.
` + "`FAIRLEAD_PLUGINS` and `--plugins`" + ` take YAML or JSON text, which is merged setting by
setting.

Three keys are for the agent, and the plugin does not see them:

| key | default | meaning |
|---|---|---|
| ` + "`on_host_loss`" + ` | ` + "`exit`" + ` | What the plugin's process does when the agent is gone, or stops: ` + "`exit`, or `serve`" + ` on, and the next agent adopts it. |
| ` + "`socket`" + ` | none | Unix socket of a plugin that runs by itself; it is used, and never started or ended. |
| ` + "`start_timeout`" + ` | ` + "`10s`" + ` | How long the process may take to its handshake; at most 1h. |
`
