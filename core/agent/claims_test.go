package agent

import (
	"strings"
	"testing"
)

// Who registers what another service has is told so.
func TestConflictsAreNamed(t *testing.T) {
	n1, _ := pair(t)
	n1.register(t, `{name: web, port: 80, vip: 10.200.0.9, hosts: [shop.example]}`)
	n1.register(t, `{name: api, port: 80, vip: 10.200.0.9, hosts: [Shop.Example., web, mine.example]}`)
	n1.register(t, `{name: other, port: 81, vip: 10.200.0.9}`)
	for name, want := range map[string]string{
		"web": "", "other": "", "api": "frontend 10.200.0.9:80/tcp default/web n1, host shop.example default/web n1, host web default/web n1",
	} {
		d, err := n1.api.Endpoints(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range d.Service.Conflicts {
			got = append(got, c.Kind+" "+c.What+" "+c.Holder+" "+c.Node)
			if c.Since.IsZero() || !strings.Contains(c.Remedy, "default/api") {
				t.Errorf("%s: %+v", name, c)
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
