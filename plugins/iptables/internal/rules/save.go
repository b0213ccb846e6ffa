package rules

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ErrSave is for text that iptables-save did not write, or not to its end.
var ErrSave = errors.New("rules: not the output of iptables-save")

// Table is a nat table as iptables-save shows it.
type Table struct {
	Chains []*Chain // in the order of the text
	byName map[string]*Chain
}

// Chain is one chain of a table.
type Chain struct {
	Name   string
	Policy string // ACCEPT and the like; "-" for a chain that is not the kernel's
	Rules  []Rule
}

// Rule is one rule of a chain.
type Rule struct {
	Spec           string // as after `-A CHAIN `
	Packets, Bytes uint64 // 0 if the text has no counters
}

// Chain returns the chain of a name, or nil.
func (t *Table) Chain(name string) *Chain { return t.byName[name] }

// unshown begins what iptables-nft-save says in place of a table that nft made in its
// own ways. To take it for an empty one would mean to make everything again.
const unshown = "# Table `nat' is incompatible"

// Parse reads the output of `iptables-save`, with or without counters, of which it
// keeps the nat table. Without one the table is empty, as before the first rule.
func Parse(save []byte) (*Table, error) {
	t := &Table{byName: make(map[string]*Chain)}
	inside, ours, number := false, false, 0
	for line := range bytes.Lines(save) {
		number++
		text := strings.TrimSpace(string(line))
		var err error
		switch {
		case strings.HasPrefix(text, unshown):
			err = errors.New("the nat table holds what iptables cannot show: look at it with `nft list table ip nat`, or ip6 nat")
		case text == "" || text[0] == '#':
		case text[0] == '*' && !inside:
			inside, ours = true, text == "*nat"
			if ours && len(t.Chains) > 0 {
				err = errors.New("a second nat table")
			}
		case text == "COMMIT" && inside:
			inside = false
		case !inside:
			err = fmt.Errorf("%q outside of a table", clip(text))
		case !ours:
		case text[0] == ':':
			err = t.parseChain(text[1:])
		default:
			err = t.parseRule(text)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrSave, number, err)
		}
	}
	if inside {
		return nil, fmt.Errorf("%w: it ends within a table, after %d lines", ErrSave, number)
	}
	return t, nil
}

func (t *Table) parseChain(text string) error {
	fields := strings.Fields(text)
	if len(fields) < 2 || len(fields) > 3 || t.byName[fields[0]] != nil {
		return fmt.Errorf("chain %q: want a name, seen once, a policy and counters", clip(text))
	}
	c := &Chain{Name: fields[0], Policy: fields[1]}
	t.Chains = append(t.Chains, c)
	t.byName[c.Name] = c
	return nil
}

func (t *Table) parseRule(text string) error {
	var r Rule
	if text[0] == '[' {
		counters, rest, ok := strings.Cut(text[1:], "] ")
		packets, octets, both := strings.Cut(counters, ":")
		var errs [2]error
		r.Packets, errs[0] = strconv.ParseUint(packets, 10, 64)
		r.Bytes, errs[1] = strconv.ParseUint(octets, 10, 64)
		if !ok || !both || errs[0] != nil || errs[1] != nil {
			return fmt.Errorf("counters of %q: want [PACKETS:BYTES]", clip(text))
		}
		text = rest
	}
	rest, ok := strings.CutPrefix(text, "-A ")
	name, spec, _ := strings.Cut(rest, " ")
	c := t.byName[name]
	if !ok || c == nil {
		return fmt.Errorf("%q: want a rule of a chain that was declared", clip(text))
	}
	r.Spec = strings.TrimSpace(spec)
	if _, ok := words(r.Spec); !ok {
		return fmt.Errorf("rule %q: a quote is not closed", clip(text))
	}
	c.Rules = append(c.Rules, r)
	return nil
}

func clip(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// words splits a rule as a shell would, as iptables-save quotes.
func words(spec string) (list []string, ok bool) {
	var word []byte
	quoted, started := false, false
	for i := 0; i < len(spec); i++ {
		switch c := spec[i]; {
		case c == '\\' && quoted && i+1 < len(spec):
			i++
			word = append(word, spec[i])
		case c == '"':
			quoted, started = !quoted, true
		case c == ' ' && !quoted:
			if started {
				list, word, started = append(list, string(word)), nil, false
			}
		default:
			word, started = append(word, c), true
		}
	}
	if started {
		list = append(list, string(word))
	}
	return list, !quoted
}

// sameRule reports whether two rules are the same but for quotes.
func sameRule(a, b string) bool {
	if a == b {
		return true
	}
	x, _ := words(a)
	y, _ := words(b)
	return slices.Equal(x, y)
}

// target is the chain, or what else, that a rule leads to. What begins like another
// option is none, as no chain's name does: there -j is what some option is given.
func target(spec string) string {
	list, _ := words(spec)
	for i := 1; i < len(list); i++ {
		if (list[i-1] == "-j" || list[i-1] == "-g") && !strings.HasPrefix(list[i], "-") && !strings.HasPrefix(list[i], "!") {
			return list[i]
		}
	}
	return ""
}

// remark is a rule's comment.
func remark(spec string) string { return after(spec, "--comment") }

// after is the word that follows an option.
func after(spec, option string) string {
	list, _ := words(spec)
	for i := 1; i < len(list); i++ {
		if list[i-1] == option {
			return list[i]
		}
	}
	return ""
}
