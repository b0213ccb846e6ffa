package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Variant is which of the kernel's two interfaces a binary of iptables speaks to.
// Rules made through one are not seen through the other.
type Variant string

// The variants.
const (
	Legacy Variant = "legacy" // ip_tables
	NFT    Variant = "nft"    // nf_tables
)

// Other is the variant that this is not.
func (v Variant) Other() Variant {
	if v == Legacy {
		return NFT
	}
	return Legacy
}

// Family is a version of IP.
type Family int

// The families.
const (
	V4 Family = 4
	V6 Family = 6
)

// String prints IPv4 or IPv6.
func (f Family) String() string { return fmt.Sprintf("IPv%d", int(f)) }

// Tools are the binaries of one variant.
type Tools struct {
	Variant Variant
	Version [3]int
	// Default is whether the plain name iptables leads here.
	Default bool
	v4, v6  paths
}

// paths are the binaries of one family; all empty: it has none.
type paths struct{ command, save, restore string }

// ErrNoTools is that no binary of iptables is installed.
var ErrNoTools = errors.New("host: iptables is not installed: install the package iptables, or set PATH to where it is")

// HasV6 reports whether there are binaries for IPv6.
func (t Tools) HasV6() bool { return t.v6.command != "" }

// Command is the path of iptables or ip6tables.
func (t Tools) Command(f Family) string { return t.of(f).command }

func (t Tools) of(f Family) paths {
	if f == V6 {
		return t.v6
	}
	return t.v4
}

// String prints the variant, the version and the path.
func (t Tools) String() string {
	return fmt.Sprintf("iptables %d.%d.%d (%s, %s)", t.Version[0], t.Version[1], t.Version[2], t.Variant, t.v4.command)
}

// FindTools looks for the binaries of both variants: by the names that say which
// they are, and by the plain names, which say it when asked.
func FindTools(ctx context.Context) (map[Variant]Tools, error) {
	found := make(map[Variant]Tools)
	for _, suffix := range []string{"", "-legacy", "-nft"} {
		t, ok, err := findTools(ctx, suffix)
		if err != nil {
			return nil, err
		}
		if _, known := found[t.Variant]; ok && !known {
			t.Default = suffix == ""
			found[t.Variant] = t
		}
	}
	if len(found) == 0 {
		return nil, ErrNoTools
	}
	return found, nil
}

func findTools(ctx context.Context, suffix string) (Tools, bool, error) {
	t := Tools{v4: findPaths("iptables" + suffix), v6: findPaths("ip6tables" + suffix)}
	if t.v4.command == "" {
		return t, false, nil
	}
	out, err := Run(ctx, Command{Path: t.v4.command, Args: []string{"-V"}})
	if err != nil {
		return t, false, err
	}
	if t.Version, t.Variant, err = parseVersion(out); err != nil {
		return t, false, fmt.Errorf("host: %s -V: %w", t.v4.command, err)
	}
	return t, true, nil
}

// findPaths returns a set of binaries if it is whole.
func findPaths(name string) paths {
	p := paths{command: lookPath(name), save: lookPath(name + "-save"), restore: lookPath(name + "-restore")}
	if p.command == "" || p.save == "" || p.restore == "" {
		return paths{}
	}
	return p
}

// lookPath is exec.LookPath, with the places of administrators' programs added:
// PATH of an ordinary user lacks them, and that of a child may be empty.
func lookPath(name string) string {
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, dir := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

var versionText = regexp.MustCompile(`v(\d+)\.(\d+)\.(\d+)(?:.*\((\w+)\))?`)

// parseVersion reads what -V prints. Before 1.8 there was one variant, which needs
// no name.
func parseVersion(out string) (version [3]int, v Variant, err error) {
	m := versionText.FindStringSubmatch(out)
	if m == nil {
		return version, "", fmt.Errorf("%q is no version of iptables", strings.TrimSpace(out))
	}
	for i := range version {
		if version[i], err = strconv.Atoi(m[i+1]); err != nil {
			return version, "", err
		}
	}
	switch m[4] {
	case "nf_tables":
		return version, NFT, nil
	case "legacy", "":
		return version, Legacy, nil
	}
	return version, "", fmt.Errorf("the variant %q is not known", m[4])
}
