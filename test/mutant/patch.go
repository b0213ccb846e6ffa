package mutant

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// suffix ends the names of patches.
const suffix = ".patch"

// Mutant is a patch that plants one bug.
type Mutant struct {
	Name     string
	Test     string   // that finds it; empty: the suite's
	CaughtBy []string // the invariants that may find it
	files    []filePatch
}

// filePatch changes one file; path is relative to the root of the repository.
type filePatch struct {
	path  string
	hunks []hunk
}

// hunk replaces some lines by others.
type hunk struct{ from, to []string }

// Read reads a patch.
func Read(path string) (*Mutant, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m := &Mutant{Name: strings.TrimSuffix(filepath.Base(path), suffix)}
	for line := range strings.Lines(string(text)) {
		if err := m.take(strings.TrimSuffix(line, "\n")); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if len(m.CaughtBy) == 0 || len(m.files) == 0 {
		return nil, fmt.Errorf("%s: want a line `# caught by: NAME, NAME…` and a unified diff", path)
	}
	for _, f := range m.files {
		if len(f.hunks) == 0 {
			return nil, fmt.Errorf("%s: it changes nothing in %s", path, f.path)
		}
	}
	return m, nil
}

// take reads one line.
func (m *Mutant) take(line string) error {
	if names, ok := strings.CutPrefix(line, "# caught by: "); ok {
		m.CaughtBy = strings.Split(names, ", ")
		return nil
	}
	if name, ok := strings.CutPrefix(line, "# test: "); ok {
		m.Test = name
		return nil
	}
	switch {
	case strings.HasPrefix(line, "#"), strings.HasPrefix(line, "--- "):
		return nil
	case strings.HasPrefix(line, "+++ "):
		path, ok := strings.CutPrefix(strings.Fields(line)[1], "b/")
		if !ok || !filepath.IsLocal(path) || strings.HasSuffix(path, "_test.go") {
			return fmt.Errorf("%q: want the path b/… of a source, from the root of the repository", line)
		}
		m.files = append(m.files, filePatch{path: path})
		return nil
	case len(m.files) == 0:
		return fmt.Errorf("%q comes before any file", line)
	}
	return m.files[len(m.files)-1].take(line)
}

// take reads one line of the diff of a file.
func (f *filePatch) take(line string) error {
	if strings.HasPrefix(line, "@@ ") {
		f.hunks = append(f.hunks, hunk{})
		return nil
	}
	if len(f.hunks) == 0 {
		return fmt.Errorf("%q comes before any hunk", line)
	}
	h := &f.hunks[len(f.hunks)-1]
	if line == "" {
		line = " "
	}
	switch body := line[1:]; line[0] {
	case ' ':
		h.from, h.to = append(h.from, body), append(h.to, body)
	case '-':
		h.from = append(h.from, body)
	case '+':
		h.to = append(h.to, body)
	default:
		return fmt.Errorf("%q is no line of a hunk", line)
	}
	return nil
}

// apply returns src with all hunks applied. Each has to fit at exactly one place.
func (f *filePatch) apply(src string) (string, error) {
	lines := strings.Split(src, "\n")
	for i, h := range f.hunks {
		at := -1
		for j := 0; j+len(h.from) <= len(lines); j++ {
			if slices.Equal(lines[j:j+len(h.from)], h.from) {
				if at >= 0 {
					return "", fmt.Errorf("hunk %d fits %s more than once", i+1, f.path)
				}
				at = j
			}
		}
		if at < 0 {
			return "", fmt.Errorf("hunk %d does not fit %s any more", i+1, f.path)
		}
		lines = slices.Replace(lines, at, at+len(h.from), h.to...)
	}
	return strings.Join(lines, "\n"), nil
}
