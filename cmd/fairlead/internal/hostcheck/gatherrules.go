package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tool is the path of a program, also where a shell without a login does not look.
func tool(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

// output runs a program that only reads.
func output(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, tool(name), args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// gatherRules looks at iptables in both variants, nftables and conntrack. Legacy
// tables are read only if they are there: to ask for one makes it.
func gatherRules(ctx context.Context) (Netfilter, Leftovers) {
	n := Netfilter{LockHeld: lockHeld("/run/xtables.lock"), Conntrack: connectionTable()}
	var l Leftovers
	if tool("iptables") != "" {
		version, err := output(ctx, "iptables", "--version")
		if n.Iptables = strings.TrimSpace(version); err != nil {
			n.Iptables = err.Error()
		}
	}
	if os.Geteuid() != 0 {
		n.Legacy.Why, n.NFT.Why, l.Chains.Why, l.Tables.Why = needsRoot, needsRoot, needsRoot, needsRoot
		return n, l
	}
	var ours [2]Known[int]
	n.Legacy, ours[0] = savedRules(ctx, "legacy", legacyTables)
	n.NFT, ours[1] = savedRules(ctx, "nft", func(string) bool { return true })
	for _, o := range ours {
		l.Chains.Value += o.Value
		l.Chains.Why += o.Why
	}
	l.Tables = nftTables(ctx)
	return n, l
}

// legacyTables reports whether tables of the legacy variant exist in a family: ip
// or ip6.
func legacyTables(family string) bool {
	text, err := os.ReadFile("/proc/net/" + family + "_tables_names")
	return err == nil && len(text) > 0
}

// savedRules counts the rules of others and the chains of ours in one variant, of
// both families.
func savedRules(ctx context.Context, variant string, there func(family string) bool) (others, ours Known[int]) {
	for _, family := range []string{"ip", "ip6"} {
		name := family + "tables-" + variant + "-save"
		if tool(name) == "" || !there(family) {
			continue
		}
		text, err := output(ctx, name)
		if err != nil {
			return Known[int]{Why: err.Error()}, Known[int]{Why: err.Error()}
		}
		o, u := countRules(text)
		others.Value += o
		ours.Value += u
	}
	return others, ours
}

// countRules counts in the text of iptables-save.
func countRules(text string) (others, ours int) {
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(line, ":FAIRLEAD-"):
			ours++
		case strings.HasPrefix(line, "-A ") && !strings.Contains(line, "FAIRLEAD-"):
			others++
		}
	}
	return others, ours
}

func nftTables(ctx context.Context) Known[int] {
	if tool("nft") == "" {
		return Known[int]{}
	}
	text, err := output(ctx, "nft", "list", "tables")
	if err != nil {
		return Known[int]{Why: err.Error()}
	}
	return Known[int]{Value: strings.Count(text, " fairlead-")}
}

// lockHeld tries the lock of iptables and lets it go at once.
func lockHeld(path string) Known[bool] {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Known[bool]{}
	}
	if err != nil {
		return knownOr(false, err)
	}
	defer file.Close()
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return Known[bool]{Value: true}
	}
	return knownOr(false, err)
}

func connectionTable() Known[Conntrack] {
	var c Conntrack
	for name, n := range map[string]*int{"count": &c.Count, "max": &c.Max} {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_" + name)
		if errors.Is(err, fs.ErrNotExist) {
			return Known[Conntrack]{} // not loaded
		}
		if err == nil {
			*n, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil {
			return knownOr(c, err)
		}
	}
	return Known[Conntrack]{Value: c}
}
