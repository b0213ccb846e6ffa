package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	nameRule  = "a name has 1 to 63 letters, digits, dots, underscores and hyphens, and starts with a letter or digit"
	labelRule = "a name has 1 to 63 lower-case letters, digits and hyphens, with a letter or digit at each end"
)

func (v *validator) name(path, name string) {
	if !isName(name) {
		v.failf(path, "is %s; %s", quote(name), nameRule)
	}
}

func isName(s string) bool {
	if s == "" || len(s) > 63 || strings.ContainsRune("._-", rune(s[0])) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !isAlnum(r) && !strings.ContainsRune("._-", r) })
}

// isLabel is RFC 1123's label in lower case, because service names become
// parts of domain names.
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' || s != strings.ToLower(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !isAlnum(r) && r != '-' })
}

func isAlnum(r rune) bool {
	return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9')
}

func (v *validator) duration(path string, d, low, high time.Duration) {
	if d < low || d > high {
		v.failf(path, "is %s; set %s to %s", formatDuration(d), formatDuration(low), formatDuration(high))
	}
}

// enum repeats what decoding checked, for a Config that was made in Go.
func (v *validator) enum(path, word string, words ...string) {
	if !slices.Contains(words, word) {
		v.failf(path, "is %s; expected %s", quote(word), strings.Join(words, ", "))
	}
}

// pair reports two keys of which only one is set.
func (v *validator) pair(pathA, a, pathB, b string) {
	if a == "" && b != "" {
		pathA, pathB = pathB, pathA
	}
	if (a == "") != (b == "") {
		v.failf(pathA, "is set without %s; set both or none", pathB)
	}
}

// joinAddress completes an entry of cluster.join with the gossip port.
func joinAddress(entry string) (string, error) {
	wrong := errors.New("set host:port, such as 10.9.0.2:7400, [fd00::2]:7400 or seed.example.com")
	if addr, err := parseIP(entry); err == nil {
		entry = netip.AddrPortFrom(addr, GossipPort).String()
	} else if !strings.Contains(entry, ":") {
		entry += ":" + strconv.Itoa(GossipPort)
	}
	host, err := splitHostPort(entry)
	if err != nil {
		return "", wrong
	}
	if addr, err := netip.ParseAddr(host); err == nil && (addr.IsUnspecified() || addr.IsMulticast()) {
		return "", fmt.Errorf("%s is not the address of one host; %w", addr, wrong)
	}
	return entry, nil
}

// splitHostPort checks host:port and returns the host. It exists because
// package net, which this package does without, is a name resolver too.
func splitHostPort(s string) (string, error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", errors.New("no port")
	}
	host, port := s[:i], s[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", errors.New("port is not 1 to 65535")
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		addr, err := netip.ParseAddr(strings.TrimSuffix(inner, "]"))
		if err != nil || !addr.Is6() || !strings.HasSuffix(inner, "]") {
			return "", errors.New("not an IPv6 address in brackets")
		}
		return addr.String(), nil
	}
	if _, err := netip.ParseAddr(host); err == nil && !strings.Contains(host, ":") {
		return host, nil
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(host) > 253 || slices.ContainsFunc(labels, func(l string) bool { return !isHostLabel(l) }) || isNumeric(labels[len(labels)-1]) {
		return "", errors.New("not a host")
	}
	return host, nil
}

// isHostLabel allows what resolvers meet in practice: upper case and underscores.
func isHostLabel(s string) bool {
	return isLabel(strings.ReplaceAll(strings.ToLower(s), "_", "x"))
}

// isNumeric finds mistyped IPv4 addresses such as 10.9.0.256: no top-level
// domain is a number.
func isNumeric(s string) bool { return strings.Trim(s, "0123456789") == "" }

// addrText is the address as it was written, "" if none was.
func addrText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
