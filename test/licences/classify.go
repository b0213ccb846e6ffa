package main

import "strings"

// Allowed reports whether what a licence of this name asks for can be met by a
// binary under Apache-2.0: keep the notices, publish changes to the files. The
// names are those of SPDX.
func Allowed(name string) bool {
	switch name {
	case "Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "MPL-2.0", "ISC":
		return true
	}
	return false
}

// phrase is a run of words that a licence has and others have not.
type phrase struct{ name, words string }

// refused are looked for first: one such phrase spoils a file that also holds
// an allowed licence.
func refused() []phrase {
	return []phrase{
		// The preamble of GPL, LGPL, AGPL and FDL. MPL-2.0 names the GPL too, as
		// a secondary licence, but without it.
		{"GNU", "everyone is permitted to copy and distribute verbatim copies of this license document"},
		{"SSPL", "server side public license"},
		{"BUSL", "business source license"},
		{"Commons-Clause", "commons clause"},
		{"Elastic", "elastic license"},
		{"CC", "creative commons"},
		{"BSD-4-Clause", "all advertising materials mentioning features"},
		{"EPL", "eclipse public license"},
		{"CDDL", "common development and distribution license"},
	}
}

func known() []phrase {
	return []phrase{
		{"MPL-2.0", "mozilla public license version 2.0"},
		{"MPL-2.0", "mozilla public license, version 2.0"},
		{"Apache-2.0", "apache license version 2.0"},
		{"Apache-2.0", "apache license, version 2.0"},
		{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee"},
		{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee"},
		{"BSD", "redistribution and use in source and binary forms, with or without modification, are permitted"},
	}
}

// Classify names the licences whose text is in a file, by SPDX identifier, in
// the order above and each once. Nothing means that the text is unknown. A
// refused licence is returned alone.
func Classify(text string) []string {
	words := plain(text)
	for _, p := range refused() {
		if strings.Contains(words, p.words) {
			return []string{p.name}
		}
	}
	var names []string
	seen := map[string]bool{}
	for _, p := range known() {
		if !strings.Contains(words, p.words) {
			continue
		}
		name := p.name
		if name == "BSD" {
			name = "BSD-2-Clause"
			if strings.Contains(words, "neither the name") {
				name = "BSD-3-Clause"
			}
		}
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	// A short notice may name the GPL without its preamble.
	if !seen["MPL-2.0"] {
		for _, gnu := range []string{"gnu general public", "gnu lesser general public", "gnu library general public", "gnu affero general public"} {
			if strings.Contains(words, gnu) {
				return []string{"GNU"}
			}
		}
	}
	return names
}

// plain reduces a text to its words in lower case, one space between two, without
// the marks that a comment or a quotation puts before each line.
func plain(text string) string {
	var words []string
	for line := range strings.Lines(strings.ToLower(text)) {
		words = append(words, strings.Fields(strings.TrimLeft(line, " \t>/*#;"))...)
	}
	return strings.Join(words, " ")
}
