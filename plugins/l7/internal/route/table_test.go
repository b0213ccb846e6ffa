package route

import (
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/test/scale"
)

func key(s string) dataplane.Key {
	k, err := dataplane.ParseKey(s)
	if err != nil {
		panic(err)
	}
	return k
}

// svc is a service whose target is its key.
func svc(name string, hosts []string, routes ...dataplane.Route) Service[string] {
	return Service[string]{Key: key(name), Hosts: hosts, Routes: routes, Target: key(name).String()}
}

func build(t *testing.T, services ...Service[string]) *Table[string] {
	t.Helper()
	e := New[string]("").Edit()
	for _, s := range services {
		if err := e.Set(s); err != nil {
			t.Fatal(err)
		}
	}
	table, _ := e.Done()
	return table
}

// ask is a request as the proxy makes it of what came in.
func ask(t *testing.T, table *Table[string], method, authority, path string, headers ...string) string {
	t.Helper()
	host, err := Canonical(authority)
	if err != nil {
		t.Fatal(err)
	}
	match, err := Path(path)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	target, v := table.Lookup(Request{Host: host, Path: match, Method: method, Header: h})
	if v != Found {
		return []string{"no host", "no route"}[v]
	}
	return target
}

func TestHostsOfAService(t *testing.T) {
	table := build(t,
		svc("web", []string{"Shop.example.", "Bücher.example", "2001:DB8::1"}),
		svc("prod/web", nil), svc("prod/api", nil))
	for host, want := range map[string]string{
		"web": "default/web", "web.default": "default/web", "web.default.mesh.internal": "default/web", "WEB.Default.Mesh.Internal.:8080": "default/web",
		"shop.example": "default/web", "shop.example.": "default/web", "SHOP.EXAMPLE:80": "default/web", "shop.example.:443": "default/web",
		"xn--bcher-kva.example": "default/web", "[2001:db8:0::1]:80": "default/web",
		"web.prod": "prod/web", "web.prod.mesh.internal": "prod/web", "api.prod": "prod/api",
		"api": "no host", "api.default": "no host", "web.mesh.internal": "no host", "x.shop.example": "no host",
	} {
		if got := ask(t, table, "GET", host, "/"); got != want {
			t.Errorf("host %s leads to %s, want %s", host, got, want)
		}
	}
}

func TestZone(t *testing.T) {
	e := New[string]("Example.Net").Edit()
	if err := e.Set(svc("web", nil)); err != nil {
		t.Fatal(err)
	}
	table, _ := e.Done()
	if got := ask(t, table, "GET", "web.default.example.net", "/"); got != "default/web" {
		t.Error(got)
	}
}

func TestRoutes(t *testing.T) {
	r := func(host, prefix string, methods []string, headers ...string) dataplane.Route {
		route := dataplane.Route{Host: host, PathPrefix: prefix, Methods: methods, Headers: map[string]string{}}
		for i := 0; i < len(headers); i += 2 {
			route.Headers[headers[i]] = headers[i+1]
		}
		return route
	}
	table := build(t,
		svc("api", nil, r("shop.example", "/api", nil)),
		svc("api2", nil, r("shop.example", "/api/v2/", nil)),
		svc("beta", nil, r("shop.example", "/api", nil, "x-beta", "1")),
		svc("write", nil, r("shop.example", "/api", []string{"PUT", "POST"})),
		svc("shop", []string{"shop.example"}),
		svc("wild", []string{"*.example"}),
		svc("deep", []string{"*.a.example"}),
		svc("cafe", nil, r("only.example", "/caf%C3%A9", nil), r("only.example", "/x%2Fy", nil)),
		svc("fallback", nil, r("", "/", nil)))
	for _, tt := range []struct{ method, host, path, header, want string }{
		{"GET", "shop.example", "/", "", "shop"},
		{"GET", "shop.example", "/apis", "", "shop"},
		{"GET", "shop.example", "/api", "", "api"},
		{"GET", "shop.example", "/api/", "", "api"},
		{"GET", "shop.example", "/%61pi/x", "", "api"},
		{"GET", "shop.example", "/api%2Fv2", "", "shop"},
		{"GET", "shop.example", "/API", "", "shop"},
		{"GET", "shop.example", "/api/v2", "", "api2"},
		{"GET", "shop.example", "/api/v2/x", "1", "api2"},
		{"GET", "shop.example", "/api/v22", "", "api"},
		{"GET", "shop.example", "/api", "1", "beta"},
		{"POST", "shop.example", "/api", "", "write"},
		{"POST", "shop.example", "/api", "1", "beta"},
		{"OPTIONS", "shop.example", "*", "", "shop"},
		{"GET", "x.example", "/", "", "wild"},
		{"GET", "y.x.example", "/", "", "wild"},
		{"GET", "y.a.example", "/", "", "deep"},
		{"GET", "a.example", "/", "", "wild"},
		{"GET", "only.example", "/café/x", "", "cafe"},
		{"GET", "only.example", "/caf%c3%a9", "", "cafe"},
		{"GET", "only.example", "/x%2fy/z", "", "cafe"},
		{"GET", "only.example", "/x/y", "", "no route"}, // the host decides, there is no second try
		{"GET", "example", "/", "", "fallback"},
		{"GET", "10.0.0.1", "/x", "", "fallback"},
	} {
		headers := []string{"X-Other", "1"}
		if tt.header != "" {
			headers = append(headers, "X-Beta", "0", "X-Beta", tt.header)
		}
		if got := strings.TrimPrefix(ask(t, table, tt.method, tt.host, tt.path, headers...), "default/"); got != tt.want {
			t.Errorf("%s %s%s %q leads to %s, want %s", tt.method, tt.host, tt.path, tt.header, got, tt.want)
		}
	}
}

func TestServicesThatAreWrong(t *testing.T) {
	route := func(r dataplane.Route) Service[string] { return svc("web", nil, r) }
	for name, s := range map[string]Service[string]{
		"host twice":    svc("web", []string{"a.example", "A.Example."}),
		"host":          svc("web", []string{"a b"}),
		"port":          svc("web", []string{"a:80"}),
		"route's host":  route(dataplane.Route{Host: "a/b"}),
		"prefix":        route(dataplane.Route{PathPrefix: "api"}),
		"dots":          route(dataplane.Route{PathPrefix: "/a/../b"}),
		"star":          route(dataplane.Route{PathPrefix: "*"}),
		"method":        route(dataplane.Route{Methods: []string{"get"}}),
		"no method":     route(dataplane.Route{Methods: []string{""}}),
		"header":        route(dataplane.Route{Headers: map[string]string{"a b": "c"}}),
		"host header":   route(dataplane.Route{Headers: map[string]string{"host": "c"}}),
		"no host":       svc("a b", nil),
		"name in colon": svc("::1", nil),
	} {
		table := build(t, svc("web", []string{"old.example"}))
		e := table.Edit()
		err := e.Set(s)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), s.Key.String()) {
			t.Errorf("%s: %v", name, err)
		}
		if next, changed := e.Done(); ask(t, next, "GET", "old.example", "/") != "default/web" || changed != nil {
			t.Errorf("%s: what was there before did not stay", name)
		}
	}
	if got := ask(t, build(t, svc("a b", []string{"ab.example"})), "GET", "ab.example", "/"); got != "default/a b" {
		t.Error("a name that is no host needs another one:", got)
	}
}

func TestConflicts(t *testing.T) {
	prefix := dataplane.Route{Host: "Shop.Example", PathPrefix: "/x/"}
	a, b := svc("a", []string{"shop.example", "b"}), svc("b", []string{"SHOP.example."}, prefix)
	c := svc("c", nil, dataplane.Route{Host: "shop.example.", PathPrefix: "/x"}, dataplane.Route{Host: "shop.example", PathPrefix: "/x", Methods: []string{"GET"}})
	for _, order := range [][]Service[string]{{a, b, c}, {c, b, a}, {b, a, c}} {
		table := build(t, order...)
		for host, want := range map[string]string{"shop.example": "default/a", "b": "default/b"} {
			if got := ask(t, table, "GET", host, "/"); got != want {
				t.Errorf("host %s leads to %s, want %s", host, got, want)
			}
		}
		for k, want := range map[string]string{
			"a": "[{b / default/b}]", // a name of a service is its own, also of a greater key
			"b": "[{shop.example / default/a}]",
			"c": "[{shop.example /x default/b}]",
		} {
			if got := fmt.Sprint(table.Conflicts(key(k))); got != want {
				t.Errorf("conflicts of %s: %s, want %s", k, got, want)
			}
		}
		e := table.Edit()
		e.Delete(key("a"))
		e.Delete(key("nobody"))
		next, changed := e.Done()
		if got := ask(t, next, "GET", "shop.example", "/"); got != "default/b" || fmt.Sprint(changed) != "[default/a default/b]" || next.Conflicts(key("b")) != nil {
			t.Errorf("after a left: %s, changed %v", got, changed)
		}
		if got := ask(t, table, "GET", "shop.example", "/"); got != "default/a" || table.Conflicts(key("b")) == nil {
			t.Error("the older table changed")
		}
	}
	a.Since, b.Since = 2, 1 // the key decides only between equals
	if got := ask(t, build(t, a, b), "GET", "shop.example", "/"); got != "default/b" {
		t.Errorf("host shop.example leads to %s, want the service that was registered first", got)
	}
}

// caddy CVE-2026-27588: a fast path for many hosts that matched in another way
// than the slow one.
func TestHowManyHostsThereAreDoesNotMatter(t *testing.T) {
	for _, n := range []int{1, 99, 101, 10000} {
		e := New[string]("").Edit()
		for i := range n {
			if err := e.Set(svc(fmt.Sprintf("s%d", i), []string{fmt.Sprintf("H%d.Example", i)})); err != nil {
				t.Fatal(err)
			}
		}
		table, _ := e.Done()
		for i := range min(n, 300) {
			host := randomCase(fmt.Sprintf("h%d.example.", i)) + ":8080"
			if got, want := ask(t, table, "GET", host, "/"), fmt.Sprintf("default/s%d", i); got != want {
				t.Fatalf("of %d hosts, %s leads to %s", n, host, got)
			}
		}
	}
}

// A host with many routes finds them by another way than one with few.
func TestManyRoutesOfAHost(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range scale.N(200) {
		var services []Service[string]
		var prefixes []string
		for i := range 20 {
			prefix := ""
			for range r.IntN(4) {
				prefix += "/" + string(rune('a'+r.IntN(3)))
			}
			if slices.Contains(prefixes, prefix) {
				continue
			}
			prefixes = append(prefixes, prefix)
			services = append(services, svc(fmt.Sprintf("s%02d", i), nil, dataplane.Route{Host: "h", PathPrefix: prefix}))
		}
		table := build(t, services...)
		for range 50 {
			path := "/"
			for range r.IntN(5) {
				path += []string{"a", "b", "/", "c", "%61"}[r.IntN(5)]
			}
			match, _ := Path(path)
			best, want := -1, "no route"
			for i, p := range prefixes {
				if (p == match || strings.HasPrefix(match, p+"/")) && len(p) > best {
					best, want = len(p), services[slices.IndexFunc(services, func(s Service[string]) bool { return s.Routes[0].PathPrefix == prefixes[i] })].Target
				}
			}
			if got := ask(t, table, "GET", "h", path); got != want {
				t.Fatalf("%s leads to %s, want %s (%q)", path, got, want, prefixes)
			}
		}
	}
}

// Whatever the history, a table is the one that its services make.
func TestEditsAreAsIfBuiltAnew(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	names := []string{"a", "b", "c", "x/a", "x/b", "a.x"}
	hosts := []string{"*", "h", "*.h", "x.h", "a", "b.x", "c.default"}
	paths := []string{"", "/p", "/p/q"}
	current := map[string]Service[string]{}
	table := New[string]("")
	for range scale.N(3000) {
		e := table.Edit()
		for range 1 + r.IntN(3) {
			name := names[r.IntN(len(names))]
			if r.IntN(3) == 0 {
				e.Delete(key(name))
				delete(current, name)
				continue
			}
			s := svc(name, []string{hosts[r.IntN(len(hosts))]}, dataplane.Route{Host: hosts[r.IntN(len(hosts))], PathPrefix: paths[r.IntN(len(paths))]})
			s.Target = fmt.Sprint(name, r.Uint32())
			if err := e.Set(s); err != nil {
				t.Fatal(err)
			}
			current[name] = s
		}
		before := table
		var changed []dataplane.Key
		table, changed = e.Done()
		var services []Service[string]
		for _, s := range current {
			services = append(services, s)
		}
		fresh := build(t, services...)
		for _, host := range append(hosts[1:], "q.h", "a.default.mesh.internal", "none") {
			for _, path := range []string{"/", "/p", "/p/q/r"} {
				if host = strings.Replace(host, "*", "w", 1); ask(t, table, "GET", host, path) != ask(t, fresh, "GET", host, path) {
					t.Fatalf("%s%s: %s by edits, %s anew", host, path, ask(t, table, "GET", host, path), ask(t, fresh, "GET", host, path))
				}
			}
		}
		for _, name := range names {
			if !slices.Equal(table.Conflicts(key(name)), fresh.Conflicts(key(name))) {
				t.Fatalf("conflicts of %s: %v by edits, %v anew", name, table.Conflicts(key(name)), fresh.Conflicts(key(name)))
			}
			if differs := !slices.Equal(before.Conflicts(key(name)), table.Conflicts(key(name))); differs != slices.Contains(changed, key(name)) {
				t.Fatalf("%s: changed is %v", name, changed)
			}
		}
	}
}

func TestShardsAreAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	shards := newShards[int](maphash.MakeSeed())
	twin := map[string]int{}
	for range scale.N(5000) {
		before, was := shards, maps.Clone(twin)
		e := shards.edit()
		for range r.IntN(20) {
			k := fmt.Sprint(r.IntN(2000))
			if v := r.Int(); r.IntN(2) == 0 {
				e.set(k, v)
				twin[k] = v
			} else {
				e.delete(k)
				delete(twin, k)
			}
		}
		shards = e.shards
		for range 20 {
			if k := fmt.Sprint(r.IntN(2000)); shards.get(k) != twin[k] || before.get(k) != was[k] {
				t.Fatalf("%s is %d, want %d; before %d, want %d", k, shards.get(k), twin[k], before.get(k), was[k])
			}
		}
		if shards.n != len(twin) || before.n != len(was) {
			t.Fatalf("%d keys, want %d; before %d, want %d", shards.n, len(twin), before.n, len(was))
		}
	}
}

func big(tb testing.TB, n int) *Table[string] {
	tb.Helper()
	e := New[string]("").Edit()
	for i := range n {
		if err := e.Set(svc(fmt.Sprintf("service-%d", i), nil)); err != nil {
			tb.Fatal(err)
		}
	}
	table, _ := e.Done()
	return table
}

func TestLookupDoesNotAllocate(t *testing.T) {
	table := big(t, 100)
	if n := testing.AllocsPerRun(100, func() {
		host, _ := Canonical("service-42.default.mesh.internal")
		path, _ := Path("/some/path")
		if _, v := table.Lookup(Request{Host: host, Path: path, Method: "GET"}); v != Found {
			t.Fatal(v)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{1, 10000} {
		table := big(b, n)
		hosts := make([]string, 1<<14)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range hosts {
			hosts[i] = fmt.Sprintf("service-%d.default:8080", r.IntN(n))
		}
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				host, _ := Canonical(hosts[i&(1<<14-1)])
				if _, v := table.Lookup(Request{Host: host, Path: "/some/path", Method: "GET"}); v != Found {
					b.Fatal(v)
				}
			}
		})
	}
}

func BenchmarkChangeOneOf10000(b *testing.B) {
	table := big(b, 10000)
	b.ReportAllocs()
	for b.Loop() {
		e := table.Edit()
		if err := e.Set(svc("service-77", []string{"shop.example"})); err != nil {
			b.Fatal(err)
		}
		table, _ = e.Done()
	}
}
