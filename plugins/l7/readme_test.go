package l7

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/fairlead/fairlead/plugins/l7/internal/conf"
	"github.com/fairlead/fairlead/plugins/l7/internal/settings"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/short"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The table of settings in README.md is that of the code.
func TestReadmeSettings(t *testing.T) {
	text := readme(t)
	rows := 0
	for _, k := range settings.Keys() {
		value := k.Show(settings.Default())
		if value != "" {
			value = "`" + value + "`"
		}
		if alone := k.Show(conf.Defaults()); alone != k.Show(settings.Default()) {
			value += ", by itself `" + alone + "`"
		}
		row := fmt.Sprintf("| `%s` | %s | %s. |", k.Name, value, k.Doc)
		if !strings.Contains(text, row+"\n") {
			t.Errorf("README.md lacks\n%s", row)
		}
		rows++
	}
	if got := strings.Count(text[strings.Index(text, "| setting |"):], "\n| `"); got != rows {
		t.Errorf("README.md has %d rows of settings, the code %d", got, rows)
	}
}

// block returns the shell block below a heading.
func block(t *testing.T, heading string) string {
	t.Helper()
	m := regexp.MustCompile("(?s)\n## " + regexp.QuoteMeta(heading) + "\n.*?```sh\n(.*?)```").FindStringSubmatch(readme(t))
	if m == nil {
		t.Fatalf("README.md has no shell block below %q", heading)
	}
	return m[1]
}

// place puts a block's fixed ports and paths where nobody else is.
func place(text, dir, listen string) string {
	return strings.NewReplacer("127.0.0.1:8080", listen, "127.0.0.1:7480", "127.0.0.1:0", "/run/fairlead", dir, "/etc/fairlead", dir).Replace(text)
}

// The lines below "By itself" do what they say.
func TestReadmeByItself(t *testing.T) {
	dir, a := short.Dir(t), backend(t, "a")
	listen := "127.0.0.1:" + freePort(t)
	text := strings.ReplaceAll(place(block(t, "By itself"), dir, listen), "127.0.0.1:9001", address(a))
	setup, serveLine, ok := strings.Cut(text, "fairlead-dataplane-l7 serve")
	if !ok {
		t.Fatalf("no serve line in\n%s", text)
	}
	path := "PATH=" + filepath.Dir(programs.path(t, "fairlead-dataplane-l7")) + ":" + os.Getenv("PATH")
	cmd := exec.Command("bash", "-euc", setup)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), path)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "is valid") {
		t.Fatalf("%v: %s", err, out)
	}
	p := run(t, "/bin/bash", []string{path}, "-c", "cd "+dir+"; exec fairlead-dataplane-l7 serve"+serveLine)
	answers(t, listen, "a")
	p.signal(syscall.SIGHUP)
	p.says(`msg="the configuration was reloaded"`)
	p.signal(syscall.SIGTERM)
	if code := p.code(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// So do those that follow an agent, and those that wait for one.
func TestReadmeWithAnAgent(t *testing.T) {
	a := backend(t, "a")
	for heading, plugins := range map[string]string{
		"Following an agent": "{}", "Adopted by an agent": "{l7: {socket: %s/l7/provider.sock}}",
	} {
		t.Run(heading, func(t *testing.T) {
			n := newNode(t)
			listen := "127.0.0.1:" + freePort(t)
			text := place(block(t, heading), n.dir, listen)
			path := "PATH=" + filepath.Dir(programs.path(t, "fairlead-dataplane-l7")) + ":" + os.Getenv("PATH")
			run(t, "/bin/bash", []string{path, "FAIRLEAD_L7_LISTEN=" + listen, "FAIRLEAD_L7_ADMIN=127.0.0.1:0"}, "-c", "exec "+strings.TrimSpace(text))
			dataplane := "off"
			if strings.Contains(plugins, "%s") {
				dataplane, plugins = "l7", fmt.Sprintf(plugins, n.dir)
			}
			n.agent(dataplane, plugins, address(a))
			answers(t, listen, "a")
			c := clientOf(t, listen)
			await.For(t, "it knows that it has all, and nobody else", func() bool {
				code, _, err := ask(c, "http://nobody/")
				return err == nil && code == http.StatusNotFound
			})
		})
	}
}
