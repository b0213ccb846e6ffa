package route

import (
	"errors"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	long := strings.Repeat("a.", 126) + "a" // 253 bytes
	for _, tt := range []struct{ in, want string }{
		{"example.com", "example.com"},
		{"example.com.", "example.com"},
		{"EXAMPLE.com:80", "example.com"},
		{"example.COM.:443", "example.com"},
		{"web", "web"},
		{"my_web-1", "my_web-1"},
		{"127.0.0.1:8080", "127.0.0.1"},
		{"[::1]", "::1"},
		{"[0:0:0:0:0:0:0:1]:8080", "::1"},
		{"[2001:DB8::A]", "2001:db8::a"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"XN--Bcher-KVA.example", "xn--bcher-kva.example"},
		{long, long},
		{long + ".", long},
	} {
		if got, err := Canonical(tt.in); got != tt.want || err != nil {
			t.Errorf("Canonical(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{
		"", ".", "..", ":80", "a..b", ".a", "a..", "[::1", "::1", "::1]", "[a]", "[]", "[::1]x", "[::1]80", "[fe80::1%eth0]", "[fe80::1%25eth0]", "[127.0.0.1]", "[::1]:",
		"a:1:2", "a:", "a:b", "a:+1", "a:65536", "a:000080", "user@host", "user:pw@host", "a b", " a", "a ", "a\t", "a\x00", "a\r\nX: y", "a/b", "a?b", "a#b", "a%41", "a,b", "a\\b",
		"bücher.example", "\xff", "xn--admin-", "xn--", "xn--a", "*.example.com", "*", long + "a", strings.Repeat("a", 64), "a;b", "a[", "(a)", "a<b", "http://a",
	} {
		if got, err := Canonical(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("Canonical(%q) = %q, %v; want it refused", in, got, err)
		}
	}
}

func TestConfigHost(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"Bücher.Example.", "xn--bcher-kva.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"*.Bücher.example", "*.xn--bcher-kva.example"},
		{"*.Example.com.", "*.example.com"},
		{"::1", "::1"},
		{"[::1]", "::1"},
		{"0::1", "::1"},
		{"10.0.0.1", "10.0.0.1"},
		{"*", "*"},
	} {
		if got, err := ConfigHost(tt.in); got != tt.want || err != nil {
			t.Errorf("ConfigHost(%q) = %q, %v; want %q", tt.in, got, err, tt.want)
		}
	}
	for _, in := range []string{"", "a:80", "[::1]:80", "*.", "*.*.a", "a.*", "*a", "*.[::1]", "*.::1", "fe80::1%eth0", "a b", "bü cher", "ü..a", "xn--admin-", "http://a", "*." + strings.Repeat("a.", 126) + "a"} {
		if got, err := ConfigHost(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("ConfigHost(%q) = %q, %v; want it refused", in, got, err)
		}
	}
}

func TestCanonicalOfAPlainHostDoesNotAllocate(t *testing.T) {
	for _, host := range []string{"web.default.mesh.internal", "web:8080", "10.1.2.3:80"} {
		if n := testing.AllocsPerRun(100, func() {
			if _, err := Canonical(host); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("Canonical(%q) allocates %v times", host, n)
		}
	}
}

// A canonical host stays as it is, and how it is written changes nothing.
func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"example.com", "EXAMPLE.com.:80", "[::1]:1", "xn--bcher-kva", "a..b", "xn--admin-", "[::ffff:1.2.3.4]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		host, err := Canonical(s)
		if err != nil {
			return
		}
		authority := host
		if strings.Contains(host, ":") {
			authority = "[" + host + "]"
		}
		for _, again := range []string{authority, strings.ToUpper(authority), authority + ":443", randomCase(authority)} {
			if got, err := Canonical(again); got != host || err != nil {
				t.Fatalf("%q is %q, but %q is %q, %v", s, host, again, got, err)
			}
		}
		for i := range len(host) {
			if c := host[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("/\\@#?%", c) >= 0 {
				t.Fatalf("%q became %q", s, host)
			}
		}
		if u, err := url.Parse("http://" + s + "/"); err != nil || u.Host != s {
			t.Fatalf("net/url does not read %q so: %v", s, err)
		}
	})
}

func randomCase(s string) string {
	r := rand.New(rand.NewPCG(uint64(len(s)), 1))
	return strings.Map(func(c rune) rune {
		if r.IntN(2) == 0 {
			return []rune(strings.ToUpper(string(c)))[0]
		}
		return c
	}, s)
}
