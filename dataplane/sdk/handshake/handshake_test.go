package handshake

import (
	"encoding/json"
	"errors"
	"net"
	"testing"

	"github.com/fairlead/fairlead/dataplane"
)

func TestLine(t *testing.T) {
	if got := Line(&net.UnixAddr{Name: "/run/p", Net: "unix"}); got != "1|1|unix|/run/p|grpc|" {
		t.Fatalf("got %s", got)
	}
}

func TestDescribe(t *testing.T) {
	info := dataplane.Info{Name: "n", Version: "v", Layers: []dataplane.Layer{dataplane.L7}, Limits: dataplane.Limits{Endpoints: 3}}
	info.ScopeRules = []dataplane.ScopeRule{{Setting: "mode", Value: "far", Scopes: []dataplane.Scope{dataplane.ScopeForwarded}}}
	b, err := json.Marshal(Describe(info))
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"n","version":"v","layers":["l7"],"scopes":[],"scope_rules":[{"setting":"mode","value":"far","scopes":["forwarded"]}],"protocol":1,"protocol_minor":0,"limits":{"endpoints":3}}`
	if string(b) != want {
		t.Fatalf("got %s", b)
	}
	if err := CheckInfo(info); err != nil {
		t.Fatal(err)
	}
}

func TestCheckInfo(t *testing.T) {
	good := dataplane.Info{Name: "n", Version: "v", Layers: []dataplane.Layer{dataplane.L4}}
	for name, change := range map[string]func(*dataplane.Info){
		"name":    func(i *dataplane.Info) { i.Name = "N" },
		"version": func(i *dataplane.Info) { i.Version = "" },
		"layer":   func(i *dataplane.Info) { i.Layers = nil },
		"schema":  func(i *dataplane.Info) { i.ConfigSchema = []byte("{") },
		"setting": func(i *dataplane.Info) {
			i.ScopeRules = []dataplane.ScopeRule{{Value: "x", Scopes: []dataplane.Scope{dataplane.ScopeLocal}}}
		},
		"scopes": func(i *dataplane.Info) { i.ScopeRules = []dataplane.ScopeRule{{Setting: "mode", Value: "x"}} },
	} {
		bad := good
		change(&bad)
		if err := CheckInfo(bad); !errors.Is(err, dataplane.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
