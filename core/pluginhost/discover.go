package pluginhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// Search says where plugins are.
type Search struct {
	// Dirs are searched first, in this order: FAIRLEAD_PLUGIN_DIRS.
	Dirs []string
	// Binary is the path of the agent's own program; plugins beside it come
	// last. Its owner counts as root does. Empty: there is none.
	Binary string
}

// Candidate is one file that has the name of a plugin.
type Candidate struct {
	Name string `json:"name"`
	Path string `json:"path"`
	// Manifest is nil if there is none: then any bytes run, with all
	// capabilities of the agent.
	Manifest *Manifest `json:"manifest,omitempty"`
	// ShadowedBy is the path of the one that is used instead.
	ShadowedBy string `json:"shadowed_by,omitempty"`
	// Refused says why it is not used, nil if it may be.
	Refused *Refusal `json:"refused,omitempty"`
}

// Usable says whether this is the file that the name stands for.
func (c Candidate) Usable() bool { return c.Refused == nil && c.ShadowedBy == "" }

// Discovery is what there is, used or not.
type Discovery struct {
	Candidates []Candidate `json:"candidates"`
	// Problems are about the directories.
	Problems []string `json:"problems"`
}

// Discover lists the plugins. The first of a name wins; if it is refused no
// later one takes its place, as that would run another file than the one meant.
func Discover(s Search) Discovery {
	who := newTrust(s.Binary)
	var d Discovery
	seen := map[string]bool{}
	for _, dir := range s.directories() {
		real, err := filepath.EvalSymlinks(dir.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.problem("plugin directory %s does not exist: create it, or remove it from FAIRLEAD_PLUGIN_DIRS", dir.path)
			continue
		case err != nil:
			d.problem("plugin directory: %v", err)
			continue
		case seen[real]:
			continue
		}
		seen[real] = true
		d.directory(dir, real, who)
	}
	d.shadow()
	return d
}

func (d *Discovery) problem(format string, args ...any) {
	d.Problems = append(d.Problems, fmt.Sprintf(format, args...))
}

// Find returns the file that a name stands for, refused or not.
func (d Discovery) Find(name string) (Candidate, bool) {
	for _, c := range d.Candidates {
		if c.Name == name && c.ShadowedBy == "" {
			return c, true
		}
	}
	return Candidate{}, false
}

type directory struct {
	path   string
	listed bool // by the user
}

func (s Search) directories() []directory {
	var out []directory
	for _, dir := range s.Dirs {
		if dir != "" {
			out = append(out, directory{dir, true})
		}
	}
	if s.Binary != "" {
		out = append(out, directory{filepath.Dir(s.Binary), false})
	}
	return out
}

func (d *Discovery) directory(dir directory, real string, who trust) {
	if !filepath.IsAbs(dir.path) {
		d.problem("plugin directory %s is not absolute: write the whole path", dir.path)
		return
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		d.problem("plugin directory %s: %v", dir.path, err)
		return
	}
	untrusted := who.directories(real)
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), handshake.FilePrefix)
		if !ok || strings.HasSuffix(name, ManifestSuffix) {
			continue
		}
		c := Candidate{Name: name, Path: filepath.Join(dir.path, e.Name()), Refused: untrusted}
		if c.Refused == nil {
			c.inspect(who)
		}
		d.Candidates = append(d.Candidates, c)
	}
}

func (c *Candidate) inspect(who trust) {
	if err := handshake.CheckInfo(dataplane.Info{Name: c.Name, Version: "-", Layers: []dataplane.Layer{dataplane.L4}}); err != nil {
		c.Refused = refuse(fmt.Sprintf("%q is no name for a plugin", c.Name),
			"after "+handshake.FilePrefix+" want a lower-case letter, then at most 31 letters, digits and dashes")
		return
	}
	img, r := openImage(c.Path, c.Name, who)
	if r != nil {
		c.Refused = r
		return
	}
	defer img.close()
	c.Manifest = img.manifest
}

func (d *Discovery) shadow() {
	first := map[string]string{}
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if by, ok := first[c.Name]; ok {
			c.ShadowedBy = by
			continue
		}
		first[c.Name] = c.Path
	}
	slices.SortStableFunc(d.Candidates, func(a, b Candidate) int { return strings.Compare(a.Name, b.Name) })
}
