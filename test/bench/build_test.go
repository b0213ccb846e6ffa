package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// build returns the path of a program: that of the variable if it is set, or
// one built from a package of the module in dir.
func build(t *testing.T, variable, dir, pkg string) string {
	t.Helper()
	if path := os.Getenv(variable); variable != "" && path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return abs
	}
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	if out, err := exec.Command("go", "build", "-C", dir, "-trimpath", "-o", path, pkg).CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}
