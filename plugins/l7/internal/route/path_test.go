package route

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"/", "/"},
		{"*", "*"},
		{"/a/b", "/a/b"},
		{"/a//b", "/a//b"},
		{"/%61", "/a"},
		{"/a%20b", "/a b"},
		{"/caf%C3%A9", "/café"},
		{"/caf%c3%a9", "/café"},
		{"/a%2Fb", "/a%2Fb"},
		{"/a%2fb", "/a%2Fb"},
		{"/@scope%2fname", "/@scope%2Fname"},
		{"/a%252Fb", "/a%252Fb"},
		{"/%25", "/%25"},
		{"/...", "/..."},
		{"/..a", "/..a"},
		{"/a..", "/a.."},
		{"/.well-known/x", "/.well-known/x"},
		{"/a;b=.", "/a;b=."},
		{"/%23%3F", "/#?"},
		{"/a%5Cb", `/a\b`},
	} {
		if got, err := Path(tt.in); got != tt.want || err != nil {
			t.Errorf("Path(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{
		"", "a", "%2F", "**", "/..", "/.", "/../a", "/a/..", "/a/../b", "/a/./b", "/./", "/pub/%2e%2e/admin", "/pub/%2E./admin", "/pub/.%2e", "/pub/%2e", "/pub/..%2fadmin", "/pub%2f..%2fadmin", "/pub%2F..",
		"/pub/..;/admin", "/pub/..;x=y/admin", "/pub/.;/x", "/pub/..%5cadmin", "/pub%5C..%5Cadmin", `/pub\..\admin`, `/a\b`, "/a#b", "/#/../admin", "/a?b", "/a b", "/a\x00", "/a%00", "/a%0a", "/a%0D%0Ab", "/a%7f", "/a\x7f",
		"/%", "/%1", "/%zz", "/%2", "/a%2", "/%u0041",
	} {
		if got, err := Path(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("Path(%q) = %q, %v; want it refused", in, got, err)
		}
	}
}

func TestParseTarget(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Target
	}{
		{"/a?b=c?d", Target{Path: "/a", Query: "b=c?d", HasQuery: true}},
		{"/a?", Target{Path: "/a", HasQuery: true}},
		{"//b/a", Target{Path: "//b/a"}},
		{"*", Target{Path: "*"}},
		{"http://b", Target{Authority: "b", Path: "/"}},
		{"HTTP://b:80/x", Target{Authority: "b:80", Path: "/x"}},
		{"https://[::1]:80?q", Target{Authority: "[::1]:80", Path: "/", Query: "q", HasQuery: true}},
	} {
		if got, err := ParseTarget(tt.in); got != tt.want || err != nil {
			t.Errorf("ParseTarget(%q) = %+v, %v; want %+v", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", "a", "b:80", "/a#b", "/#/../admin", "http://", "http:///a", "http:a", "ftp://a/", "?a", "http://b#c"} {
		if got, err := ParseTarget(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("ParseTarget(%q) = %+v, %v; want it refused", in, got, err)
		}
	}
}

// Traefik CVE-2025-47952 and its like: a path matched in one form and sent in
// another. Escaping what needs no escape changes no match, and a path that
// passed is nothing else after a backend cleaned it.
func TestPathIsWhatABackendReads(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	pieces := []string{"/", "/", "/a", "/pub", "admin", ".", "..", "%2e", "%2F", "%5c", ";", "é", "%25", "\\", "x"}
	refused, passed := 0, 0
	for range 20000 {
		raw := "/"
		for range r.IntN(6) {
			raw += pieces[r.IntN(len(pieces))]
		}
		match, err := Path(raw)
		escaped, err2 := Path(escapeSome(r, raw))
		if err == nil != (err2 == nil) || match != escaped {
			t.Fatalf("%q: %q, %v; escaped: %q, %v", raw, match, err, escaped, err2)
		}
		if err != nil {
			refused++
			continue
		}
		passed++
		decoded, err := url.PathUnescape(raw)
		if err != nil {
			t.Fatal(err)
		}
		for _, border := range []string{decoded, strings.ReplaceAll(decoded, `\`, "/")} {
			noEmpty := border
			for strings.Contains(noEmpty, "//") {
				noEmpty = strings.ReplaceAll(noEmpty, "//", "/")
			}
			if cleaned := path.Clean(border); cleaned != noEmpty && cleaned+"/" != noEmpty {
				t.Fatalf("%q passed as %q; a backend makes %q of it", raw, match, cleaned)
			}
		}
	}
	if refused < 1000 || passed < 1000 {
		t.Fatalf("%d refused, %d passed: the mix tests nothing", refused, passed)
	}
}

// escapeSome escapes letters and dots, which changes no path.
func escapeSome(r *rand.Rand, raw string) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '%':
			b.WriteString(raw[i : i+3])
			i += 2
		case (c == '.' || 'a' <= c && c <= 'z' || c >= 0x80) && r.IntN(3) == 0:
			fmt.Fprintf(&b, []string{"%%%02x", "%%%02X"}[r.IntN(2)], c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// What passes is one path to net/url as well, and its form is a fixed point.
func FuzzPath(f *testing.F) {
	for _, s := range []string{"/a/b", "/a%2fb", "/%2e%2e/x", "/a%5c..", "*", "/..;/x", "/%25"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		match, err := Path(raw)
		if err != nil || raw == "*" {
			return
		}
		u, err := url.ParseRequestURI(raw)
		if err != nil {
			t.Fatalf("net/url refuses %q: %v", raw, err)
		}
		if want := strings.NewReplacer("%2F", "/", "%25", "%").Replace(match); u.Path != want || u.RawQuery != "" {
			t.Fatalf("%q is %q here and %q there", raw, want, u.Path)
		}
		for _, segment := range strings.FieldsFunc(u.Path, func(c rune) bool { return c == '/' || c == '\\' }) {
			if segment == "." || segment == ".." {
				t.Fatalf("%q passed", raw)
			}
		}
	})
}
