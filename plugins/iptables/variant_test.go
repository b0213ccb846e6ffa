package iptables

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
	"github.com/fairlead/fairlead/plugins/iptables/internal/host"
	"github.com/fairlead/fairlead/plugins/iptables/internal/rules"
	"github.com/fairlead/fairlead/test/await"
	"github.com/fairlead/fairlead/test/netns"
)

func TestPick(t *testing.T) {
	both := map[host.Variant]host.Tools{
		host.Legacy: {Variant: host.Legacy},
		host.NFT:    {Variant: host.NFT, Default: true},
	}
	legacyDefault := map[host.Variant]host.Tools{
		host.Legacy: {Variant: host.Legacy, Default: true},
		host.NFT:    {Variant: host.NFT},
	}
	only := func(v host.Variant) map[host.Variant]host.Tools { return map[host.Variant]host.Tools{v: {Variant: v}} }
	type uses = map[host.Variant]use
	for _, c := range []struct {
		name    string
		setting string
		tools   map[host.Variant]host.Tools
		uses    uses
		want    host.Variant
		remark  string // part of it
		fails   bool
	}{
		{name: "nothing there", setting: "auto", tools: both, want: host.NFT},
		{name: "nothing there, the command is legacy", setting: "auto", tools: legacyDefault, want: host.Legacy},
		{name: "others use legacy", setting: "auto", tools: both, uses: uses{host.Legacy: {others: 3}}, want: host.Legacy},
		{name: "others use nft", setting: "auto", tools: legacyDefault, uses: uses{host.NFT: {others: 1}}, want: host.NFT},
		{name: "others use both", setting: "auto", tools: both, uses: uses{host.Legacy: {others: 3}, host.NFT: {others: 1}}, want: host.NFT, remark: "3 rules in the legacy"},
		{name: "ours is kept", setting: "auto", tools: both, uses: uses{host.Legacy: {own: true}, host.NFT: {others: 1}}, want: host.Legacy},
		{name: "only legacy is installed", setting: "auto", tools: only(host.Legacy), want: host.Legacy},
		{name: "only nft is installed", setting: "auto", tools: only(host.NFT), want: host.NFT},
		{name: "asked for", setting: "legacy", tools: both, uses: uses{host.NFT: {others: 1}}, want: host.Legacy},
		{name: "asked for and not installed", setting: "legacy", tools: only(host.NFT), fails: true},
	} {
		v, remark, err := pick(c.setting, c.tools, c.uses)
		if v != c.want || (err != nil) != c.fails || !strings.Contains(remark, c.remark) || (remark != "") != (c.remark != "") {
			t.Errorf("%s: %q, %q, %v", c.name, v, remark, err)
		}
	}
}

// TestVariantInUse: with rules of others in one variant that is taken, with rules in
// both there is a warning, and what this instance has is kept.
func TestVariantInUse(t *testing.T) {
	w := newWorld(t, "auto")
	add := func(v host.Variant) {
		command(t, "iptables-"+string(v), append([]string{"-w", "20", "-t", "nat", "-A", "OUTPUT"}, foreignRule...)...)
		t.Cleanup(func() {
			command(t, "iptables-"+string(v), append([]string{"-w", "20", "-t", "nat", "-D", "OUTPUT"}, foreignRule...)...)
		})
	}
	add(host.Legacy)
	w.restart()
	if w.provider.tools.Variant != host.Legacy {
		t.Errorf("with rules in the legacy tables %s is used", w.provider.tools)
	}
	w.good(w.apply())
	add(host.NFT)
	w.restart()
	if w.provider.tools.Variant != host.Legacy {
		t.Errorf("with rules of its own in the legacy tables %s is used", w.provider.tools)
	}
	report, err := w.provider.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.ID == "variant" && c.Result.String() == "DEGRADED" && strings.Contains(c.Reason, "legacy") {
			return
		}
	}
	t.Errorf("with rules in both the probe says %+v", report)
}

// TestSettingsChange: another variant takes over without a failed connection and
// leaves nothing in the tables of the first; another mode does without OUTPUT.
func TestSettingsChange(t *testing.T) {
	w := newWorld(t, host.Legacy)
	a := service("a", vip("10.200.12.1:80", dataplane.TCP), listenTCP(t, "127.0.0.1:0", "a"))
	w.good(w.apply(a))
	load := startCallers("10.200.12.1:80", "a")
	configure := func(text string) {
		t.Helper()
		w.config.JSON = []byte(text)
		if _, err := w.provider.Configure(t.Context(), w.config); err != nil {
			t.Fatal(err)
		}
		w.good(w.apply(a))
		was := load.Count()
		netns.Eventually(t, await.Patience, func() bool { return load.Count() > was+10 }, "connects afterwards")
	}
	for _, v := range []host.Variant{host.NFT, host.Legacy, host.NFT} {
		configure(fmt.Sprintf(`{"variant": %q}`, v))
		for f, text := range saved(t, v.Other()) {
			if ours(text) {
				t.Errorf("in the %v tables of %s there is\n%s", f, v.Other(), text)
			}
		}
	}
	load.Stop(t)
	for _, mode := range []string{"forwarded", "all"} {
		want := mode == "all"
		w.config.JSON = fmt.Appendf(nil, `{"variant": "nft", "mode": %q}`, mode)
		if _, err := w.provider.Configure(t.Context(), w.config); err != nil {
			t.Fatal(err)
		}
		w.apply(a) // PARTIAL: no forwarded packet can be led to this endpoint
		if text := saved(t, host.NFT)[rules.IPv4]; strings.Contains(text, "-A OUTPUT") != want || !strings.Contains(text, "-A PREROUTING") {
			t.Errorf("in mode %s there is\n%s", mode, text)
		}
		if h := w.provider.Health(t.Context()); (h.State == dataplane.HealthReady) != want { // nothing is forwarded here
			t.Errorf("in mode %s Health says %+v", mode, h)
		}
	}
}
