package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	mit = "MIT License\nPermission is hereby granted, free of charge, to any person\nobtaining a copy of this software\n"
	bsd = "Redistribution and use in source and binary forms, with or without\nmodification, are permitted"
	gpl = "GNU GENERAL PUBLIC LICENSE\nVersion 3, 29 June 2007\nEveryone is permitted to copy and distribute verbatim copies\n of this license document, but changing it is not allowed.\n"
)

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{mit, []string{"MIT"}},
		{bsd, []string{"BSD-2-Clause"}},
		{"> " + strings.ReplaceAll(bsd, "\n", "\n> "), []string{"BSD-2-Clause"}}, // quoted
		{"// " + strings.ReplaceAll(gpl, "\n", "\n// "), []string{"GNU"}},
		{bsd + "\nNeither the name of the author", []string{"BSD-3-Clause"}},
		{bsd + "\nAll advertising materials mentioning features", []string{"BSD-4-Clause"}},
		{"Apache License\n   Version 2.0, January 2004", []string{"Apache-2.0"}},
		{"Mozilla Public License Version 2.0\n Secondary License means the GNU General Public License", []string{"MPL-2.0"}},
		{"Permission to use, copy, modify, and/or distribute this software for any\npurpose with or without fee", []string{"ISC"}},
		{mit + "Apache License, Version 2.0", []string{"Apache-2.0", "MIT"}},
		{gpl, []string{"GNU"}},
		{mit + gpl, []string{"GNU"}},
		{"This program is licensed under the GNU Affero General Public License.", []string{"GNU"}},
		{"Business Source License 1.1", []string{"BUSL"}},
		{"All rights reserved.", nil},
	} {
		if got := Classify(c.text); !slices.Equal(got, c.want) {
			t.Errorf("Classify(%.50q…) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestOwnLicence(t *testing.T) {
	text, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	if got := Classify(string(text)); !slices.Equal(got, []string{"Apache-2.0"}) {
		t.Errorf("LICENSE of this repository is %q, want Apache-2.0", got)
	}
}

// program writes a main module that links example.org/dep, which has the given
// files, and returns its directory.
func program(t *testing.T, dep map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{
		"app/go.mod":           "module example.org/app\n\ngo 1.26\n\nrequire example.org/dep v1.0.0\n\nreplace example.org/dep => ../dep\n",
		"app/cmd/app/main.go":  "package main\n\nimport _ \"example.org/dep/sub\"\n\nfunc main() {}\n",
		"dep/go.mod":           "module example.org/dep\n\ngo 1.26\n",
		"dep/sub/sub.go":       "package sub\n",
		"dep/unused/unused.go": "package unused\n",
	}
	for name, text := range dep {
		files["dep/"+name] = text
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "app")
}

func TestRun(t *testing.T) {
	for _, c := range []struct {
		name string
		dep  map[string]string
		bad  string // in the output; "" means that it passes
	}{
		{"allowed", map[string]string{"LICENSE": mit}, ""},
		{"allowed twice", map[string]string{"LICENSE.txt": mit, "sub/COPYING": mit}, ""},
		{"GPL", map[string]string{"LICENSE": gpl}, "licence GNU is not allowed"},
		{"GPL beside MIT", map[string]string{"LICENSE": mit, "COPYING": gpl}, "licence GNU is not allowed"},
		{"GPL in a package in use", map[string]string{"LICENSE": mit, "sub/LICENSE": gpl}, "licence GNU is not allowed"},
		{"GPL in a package not in use", map[string]string{"LICENSE": mit, "unused/LICENSE": gpl}, ""},
		{"no licence", nil, "example.org/dep v1.0.0 has no LICENSE file"},
		{"a source file is no licence", map[string]string{"license.go": "package dep\n"}, "has no LICENSE file"},
		{"unknown", map[string]string{"LICENSE": "All rights reserved."}, "unknown licence"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			err := run([]string{"-C", program(t, c.dep)}, &out)
			if c.bad == "" {
				if err != nil || !strings.Contains(out.String(), "ok   example.org/dep") {
					t.Errorf("%v\n%s", err, out.String())
				}
				return
			}
			if err == nil || !strings.Contains(out.String(), c.bad) {
				t.Errorf("error %v, want one, and %q in:\n%s", err, c.bad, out.String())
			}
		})
	}
}

func TestRunOnWhatDoesNotList(t *testing.T) {
	app := program(t, map[string]string{"LICENSE": mit})
	if err := run([]string{"-C", app, "./cmd/none..."}, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "no package matches ./cmd/none...") {
		t.Errorf("error %v, want one that says that nothing was checked", err)
	}
	err := run([]string{"-C", t.TempDir()}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "go list") {
		t.Errorf("error %v, want that of go list", err)
	}
}
