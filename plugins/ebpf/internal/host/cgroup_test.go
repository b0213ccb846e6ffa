package host

import (
	"errors"
	"testing"
)

func TestMountThatShowsMostCounts(t *testing.T) {
	m := func(root, point string) Mount { return Mount{root, point, "cgroup2"} }
	for _, test := range []struct {
		want   string
		mounts []Mount
	}{
		{"/b", []Mount{m("/part", "/a"), m("/", "/b"), m("/part", "/c")}},
		{"/b", []Mount{m("/", "/a"), m("/", "/b")}},
		{"/a", []Mount{m("/../..", "/a"), m("/", "/b"), m("/..", "/c")}},
		{"/b", []Mount{m("/..names", "/a"), m("/", "/b")}},
		{"/a", []Mount{m("/part", "/a"), {"/", "/b", "cgroup"}}},
	} {
		if got, err := Cgroup2(test.mounts); got != test.want || err != nil {
			t.Errorf("%v: %q, %v, want %q", test.mounts, got, err, test.want)
		}
	}
}

func TestOwnDirectoryByNames(t *testing.T) {
	for _, test := range []struct{ root, own, want string }{
		{"/", "/", "/sys/c"},
		{"/", "/a/b", "/sys/c/a/b"},
		{"/a", "/a/b", "/sys/c/b"}, // a part is mounted
		{"/a", "/a", "/sys/c"},
		{"/a", "/ab", ""},
		{"/a", "/", ""},
		{"/", "/..", ""},
		{"/", "/../init.scope", ""}, // a session of WSL2 beside systemd's namespace
		{"/..", "/../beside", "/sys/c/beside"},
		{"/..", "/..", "/sys/c"},
		{"/..", "/../../other", ""},
		{"/", "/..name", "/sys/c/..name"},
	} {
		got, err := ownDir(Mount{test.root, "/sys/c", "cgroup2"}, test.own)
		if got != test.want || (test.want == "") != errors.Is(err, ErrOutside) {
			t.Errorf("%s of %s mounted: %q, %v, want %q", test.own, test.root, got, err, test.want)
		}
	}
}

func TestRightsHaveNames(t *testing.T) {
	for r, want := range map[Right]string{Programs: "CAP_BPF", Hooks: "CAP_NET_ADMIN", Tracing: "CAP_PERFMON", Mounting: "CAP_SYS_ADMIN", 1: "capability 1"} {
		if got := r.String(); got != want {
			t.Errorf("%d is called %s, want %s", r, got, want)
		}
	}
}
