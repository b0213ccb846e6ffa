package arch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Shown is a command that a document shows to the reader: words of one shell
// command, and the line that it begins on.
type Shown struct {
	Line  int
	Words []string
}

// Commands finds what a Markdown document tells its reader to type: the lines
// that begin with a prompt ($ or #) in a console block, all lines of an sh or
// bash block, and code spans in the text that begin with one of the names.
func Commands(document string, names ...string) []Shown {
	var shown []Shown
	var fence, language string
	add := func(line int, text string) {
		for _, words := range split(text) {
			if slices.Contains(names, words[0]) {
				shown = append(shown, Shown{line, words})
			}
		}
	}
	lines := strings.Split(document, "\n")
	for i := 0; i < len(lines); i++ {
		text, n := strings.TrimSpace(lines[i]), i+1
		if m := regexp.MustCompile("^(```+|~~~+)\\s*(\\w*)").FindStringSubmatch(text); m != nil && (fence == "" || strings.HasPrefix(text, fence)) {
			if fence == "" {
				fence, language = m[1], m[2]
			} else {
				fence = ""
			}
			continue
		}
		if fence == "" {
			for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
				add(n, m[1])
			}
			continue
		}
		prompt := strings.HasPrefix(text, "$ ") || language == "console" && strings.HasPrefix(text, "# ")
		switch {
		case language == "console" && prompt:
			text = text[2:]
		case language == "sh" || language == "bash":
			text = strings.TrimPrefix(text, "$ ")
		default:
			continue
		}
		for strings.HasSuffix(text, "\\") && i+1 < len(lines) {
			i++
			text = strings.TrimSuffix(text, "\\") + " " + strings.TrimSpace(lines[i])
		}
		add(n, text)
	}
	return shown
}

// split cuts a line of shell into its commands, each into words. Assignments,
// sudo and the directory of the command are left off; what follows a # or a
// redirection is not read. It knows no quoting beyond keeping quoted words whole.
func split(text string) [][]string {
	var commands [][]string
	var words []string
	end := func() {
		if len(words) > 0 {
			words[0] = path.Base(words[0])
			commands = append(commands, words)
		}
		words = nil
	}
	for _, w := range regexp.MustCompile(`'[^']*'|"[^"]*"|\|\||&&|[|;&]|[^\s|;&'"]+`).FindAllString(text, -1) {
		switch {
		case w[0] == '|' || w[0] == '&' || w[0] == ';':
			end()
		case strings.HasPrefix(w, "#"):
			end()
			return commands
		case len(words) == 0 && (w == "sudo" || regexp.MustCompile(`^[A-Z_]+=`).MatchString(w)):
		default:
			words = append(words, w)
		}
	}
	end()
	return commands
}

// Help returns what `fairlead PATH… --help` prints.
type Help func(path ...string) (string, error)

// CheckCommand follows the words of a shown command through the help texts: each
// subcommand and each flag must be there. It understands the texts of cobra.
func CheckCommand(words []string, help Help) error {
	var at []string
	text, err := help()
	if err != nil {
		return err
	}
	rest := words[1:]
	for len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		subs := subcommands(text)
		if len(subs) == 0 {
			break // arguments
		}
		if placeholder(rest[0]) || rest[0] == "help" {
			return nil
		}
		if !slices.Contains(subs, rest[0]) {
			return fmt.Errorf("`%s` has no subcommand %q (it has %s)", strings.Join(append(words[:1:1], at...), " "), rest[0], strings.Join(subs, ", "))
		}
		at = append(at, rest[0])
		rest = rest[1:]
		if text, err = help(at...); err != nil {
			return err
		}
	}
	for _, w := range rest {
		flag, _, _ := strings.Cut(w, "=")
		if w == "--" {
			break
		}
		if !strings.HasPrefix(w, "-") || w == "-" || flag == "--help" || flag == "-h" {
			continue
		}
		if !regexp.MustCompile(`(?m)(^|[\s,])` + regexp.QuoteMeta(flag) + `([\s,=\[]|$)`).MatchString(text) {
			return fmt.Errorf("`%s` has no flag %s", strings.Join(append(words[:1:1], at...), " "), flag)
		}
	}
	return nil
}

// subcommands reads the lists under headings such as "Available Commands:".
func subcommands(help string) []string {
	var subs []string
	in := false
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasSuffix(line, "ommands:"):
			in = true
		case !strings.HasPrefix(line, " "):
			in = false
		case in:
			subs = append(subs, strings.Fields(line)[0])
		}
	}
	return subs
}

// placeholder recognises COMMAND, <command>, … and [command].
func placeholder(word string) bool {
	return word == "…" || word == "..." || strings.ContainsAny(word, "<[{") || word == strings.ToUpper(word)
}

// CheckMake reports a make target that the Makefile lacks; "" if all is well.
func CheckMake(words []string, makefile string) string {
	for _, w := range words[1:] {
		if strings.HasPrefix(w, "-") || strings.Contains(w, "=") || placeholder(w) || strings.ContainsAny(w, "*") {
			continue
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(w) + `:([^=]|$)`).MatchString(makefile) {
			return fmt.Sprintf("the Makefile has no target %q", w)
		}
	}
	return ""
}
