package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/transcript"
)

// dirOf is a watched directory and what was last handed out.
type dirOf struct {
	t    *testing.T
	path string
	log  *transcript.Buffer
	*servicesDir
	mu   sync.Mutex
	last string
}

func newDirOf(t *testing.T) *dirOf {
	d := &dirOf{t: t, path: filepath.Join(t.TempDir(), "services.d"), log: &transcript.Buffer{}}
	d.servicesDir = newServicesDir(d.path, slog.New(slog.NewTextHandler(d.log, nil)))
	return d
}

// write replaces a file as an editor does: not at one stroke.
func (d *dirOf) write(name, text string) {
	d.t.Helper()
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		d.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.path, name), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// replace replaces a file at one stroke: nobody reads a part of it and forgets what the
// file said before.
func replace(path, text string) error {
	return errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path))
}

func summary(files []serviceFile) string {
	var words []string
	for _, f := range files {
		for i, s := range f.services {
			words = append(words, strings.TrimPrefix(f.where(i), filepath.Dir(f.path)+"/")+"="+s.Name)
		}
		if f.bad {
			words = append(words, "bad")
		}
	}
	return strings.Join(words, " ")
}

func (d *dirOf) scanned() string {
	d.forget(filepath.Join(d.path, "a.yaml")) // two writes of one length within one tick of the clock
	files, _ := d.scan()
	return summary(files)
}

// A bad file harms no other and keeps what it said; a removed one is gone.
func TestFilesOfServices(t *testing.T) {
	d := newDirOf(t)
	if files, changed := d.scan(); len(files) != 0 || changed {
		t.Fatalf("a directory that does not exist: %v, %v", files, changed)
	}
	d.write("b.yaml", "services:\n- {name: db, port: 1}\n- {name: mail, port: 25}\n")
	d.write("a.yaml", "name: web\nport: 80\n")
	d.write(".hidden.yaml", "name: x\nport: 1\n")
	d.write("notes.txt", "name: y\nport: 1\n")
	if got, want := d.scanned(), "a.yaml=web b.yaml:2=db b.yaml:3=mail"; got != want {
		t.Errorf("files %q, want %q", got, want)
	}
	if _, changed := d.scan(); changed {
		t.Error("changed without a change")
	}
	d.write("a.yaml", "name: web\nport: 8x\n")
	if got, want := d.scanned(), "a.yaml=web bad b.yaml:2=db b.yaml:3=mail"; got != want {
		t.Errorf("with a bad one: %q, want %q", got, want)
	}
	if want := filepath.Join(d.path, "a.yaml") + ":2:7: port: is"; strings.Count(d.log.String(), "level=ERROR") != 1 || !strings.Contains(d.log.String(), want) {
		t.Errorf("log %s, want one error with %s", d.log, want)
	}
	d.scanned()
	if strings.Count(d.log.String(), "level=ERROR") != 1 {
		t.Errorf("the same error again: %s", d.log)
	}
	d.write("c.yaml", "nam: z\n")
	if got, want := d.scanned(), "a.yaml=web bad b.yaml:2=db b.yaml:3=mail bad"; got != want {
		t.Errorf("with a new bad one: %q, want %q", got, want)
	}
	d.write("a.yaml", "name: web2\nport: 80\n")
	for _, name := range []string{"b.yaml", "c.yaml"} {
		if err := os.Remove(filepath.Join(d.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := d.scanned(), "a.yaml=web2"; got != want {
		t.Errorf("in the end %q, want %q", got, want)
	}
	if err := os.RemoveAll(d.path); err != nil {
		t.Fatal(err)
	}
	if got := d.scanned(); got != "" {
		t.Errorf("without the directory %q", got)
	}
}

func TestWhatIsNoFileIsNamed(t *testing.T) {
	d := newDirOf(t)
	if err := os.MkdirAll(filepath.Join(d.path, "dir.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	d.write("large.yaml", strings.Repeat("#", serviceFileBytes+1))
	if err := os.Symlink("nowhere", filepath.Join(d.path, "link.yaml")); err != nil {
		t.Fatal(err)
	}
	if got := d.scanned(); got != "bad bad" {
		t.Errorf("files %q", got)
	}
	for _, want := range []string{"dir.yaml is not a file", "large.yaml is larger than"} {
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, d.log)
		}
	}
}

// Changes are seen soon, also in a directory that did not exist at the start.
func TestDirectoryIsWatched(t *testing.T) {
	d := newDirOf(t)
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.run(ctx, func(files []serviceFile) bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.last = summary(files)
			return false
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	sees := func(want string) {
		t.Helper()
		begun := time.Now()
		await.For(t, want, func() bool {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.last == want
		})
		t.Logf("%q after %v", want, time.Since(begun))
	}
	d.write("a.yaml", "name: web\nport: 80\n")
	sees("a.yaml=web")
	if err := replace(filepath.Join(d.path, "a.yaml"), "name: web\npor"); err != nil {
		t.Fatal(err)
	}
	sees("a.yaml=web bad")
	d.write("a.yaml", "name: db2\nport: 80\n")
	sees("a.yaml=db2")
	// An atomic replacement, as of a package manager.
	if err := replace(filepath.Join(d.path, "a.yaml"), "name: db3\nport: 80\n"); err != nil {
		t.Fatal(err)
	}
	sees("a.yaml=db3")
	if err := os.Remove(filepath.Join(d.path, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	sees("")
	// Gone and back: the poll finds what inotify cannot tell of.
	if err := os.Remove(d.path); err != nil {
		t.Fatal(err)
	}
	d.write("b.yaml", "name: mail\nport: 25\n")
	d.look()
	sees("b.yaml=mail")
	d.write("b.yaml", "name: news\nport: 25\n")
	sees("b.yaml=news")
}

// Behind a link no event tells of a change, and size and time may be the same.
func TestWhatALinkLeadsToIsReadAgain(t *testing.T) {
	d := newDirOf(t)
	d.write("one", "name: web\nport: 80\n")
	d.write("two", "name: app\nport: 80\n")
	then := time.Unix(1_000_000_000, 0)
	for _, name := range []string{"one", "two"} {
		if err := os.Chtimes(filepath.Join(d.path, name), then, then); err != nil {
			t.Fatal(err)
		}
	}
	current := filepath.Join(d.path, "current")
	for from, to := range map[string]string{"a.yaml": "current", "current": "one"} {
		if err := os.Symlink(to, filepath.Join(d.path, from)); err != nil {
			t.Fatal(err)
		}
	}
	if files, _ := d.scan(); summary(files) != "a.yaml=web" {
		t.Fatalf("first %q", summary(files))
	}
	if err := errors.Join(os.Remove(current), os.Symlink("two", current)); err != nil {
		t.Fatal(err)
	}
	if files, changed := d.scan(); summary(files) != "a.yaml=app" || !changed {
		t.Fatalf("then %q, changed %v", summary(files), changed)
	}
}

// What could not be used for a reason of the moment is offered again.
func TestFilesAreOfferedAgain(t *testing.T) {
	d := newDirOf(t)
	d.write("a.yaml", "name: web\nport: 80\n")
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	d.run(ctx, func(files []serviceFile) bool {
		if calls++; calls == 3 {
			cancel()
		}
		d.look()
		return true
	})
	if calls < 3 {
		t.Errorf("offered %d times", calls)
	}
}
