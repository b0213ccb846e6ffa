package rules

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Lengths of the parts of a name. MaxChainName is what iptables takes
// (XT_EXTENSION_MAXNAMELEN less the terminator), and a hash of 65 bits makes two of
// a million chains meet once in 70 million tables.
const (
	MaxChainName = 28

	chainPrefix   = "FAIRLEAD-"
	commentPrefix = "fairlead-"
	inertSuffix   = "-inert"
	tagLen        = 5
	hashLen       = 13
)

// hook is a place where a packet meets our rules.
type hook uint8

const (
	pre hook = iota
	out
	post
	hooks

	source = hooks // no hook: the root chain that POST leads to for its packets
	roots  = hooks + 1
)

// base is the kernel's chain of a hook.
func (h hook) base() string { return [hooks]string{"PREROUTING", "OUTPUT", "POSTROUTING"}[h] }

// suffix ends the name of our root chain of a hook.
func (h hook) suffix() string { return [roots]string{"PRE", "OUT", "POST", "SOURCE"}[h] }

// digits are those of RFC 4648 in lower case: none needs quotes in a rule.
const digits = "abcdefghijklmnopqrstuvwxyz234567"

// Tag is the part of every name that tells instances apart.
func Tag(instance string) string { return hash("instance", instance)[:tagLen] }

// hash is 13 letters of what is hashed; salt keeps kinds of things apart.
func hash(salt, content string) string {
	h := sha256.New()
	h.Write([]byte(salt))
	h.Write([]byte{0})
	h.Write([]byte(content))
	return base32.NewEncoding(digits).EncodeToString(h.Sum(nil)[:10])[:hashLen]
}

// rootName is the name of the chain that a base chain jumps to.
func rootName(tag string, h hook) string { return chainPrefix + tag + "-" + h.suffix() }

// comment marks our rules in base chains.
func comment(tag string) string { return commentPrefix + tag }

// tagOf returns the tag in the name of a chain of any instance.
func tagOf(chain string) (string, bool) {
	rest, ok := strings.CutPrefix(chain, chainPrefix)
	if !ok || len(rest) < tagLen+1 || rest[tagLen] != '-' || !letters(rest[:tagLen]) {
		return "", false
	}
	switch last := rest[tagLen+1:]; {
	case last == pre.suffix(), last == out.suffix(), last == post.suffix(), last == source.suffix():
		return rest[:tagLen], true
	case len(last) == hashLen && letters(last):
		return rest[:tagLen], true
	}
	return "", false
}

// tagOfComment returns the tag in a comment of ours, and whether the rule is an
// inert one.
func tagOfComment(text string) (tag string, inert, ok bool) {
	rest, ok := strings.CutPrefix(text, commentPrefix)
	if !ok {
		return "", false, false
	}
	rest, inert = strings.CutSuffix(rest, inertSuffix)
	return rest, inert, len(rest) == tagLen && letters(rest)
}

func letters(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(digits, s[i]) < 0 {
			return false
		}
	}
	return true
}
