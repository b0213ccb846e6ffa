package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/core/model"
	"github.com/fairlead/fairlead/core/record"
)

func key(name string) model.ServiceKey { return model.ServiceKey{Namespace: "default", Name: name} }

// sample uses every field.
func sample() record.Definition {
	return record.Definition{
		Advertise: netip.MustParseAddr("10.9.0.1"), Zone: "z1",
		Services: []model.Service{
			{
				Key: key("web"), Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}, {Port: 53, Protocol: model.UDP}},
				VIP: netip.MustParseAddr("10.200.0.10"), Intercept: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8001"), netip.MustParseAddrPort("[::1]:8001")},
				OnEmpty: model.OnEmptyRefuse, Balance: model.BalanceHash, Affinity: time.Hour, Hosts: []string{"www.example.org", ""},
				Routes:    []model.Route{{Host: "h", PathPrefix: "/p", Headers: map[string]string{"b": "2", "a": "1", "": ""}, Methods: []string{"GET", "PUT"}}, {}},
				DrainTime: 30 * time.Second, Registered: 1_700_000_000_123,
			},
			{Key: key("db"), Registered: -5},
		},
		Instances: []model.Instance{
			{ID: "web-1", Service: key("web"), Addr: netip.MustParseAddrPort("127.0.0.1:9001"), HostPort: 19001, Weight: 1},
			{ID: "web-2", Service: key("web"), Addr: netip.MustParseAddrPort("[fd00::1]:9001"), Weight: 65535},
			{ID: "web-1", Service: key("db"), Addr: netip.MustParseAddrPort("10.9.0.1:5432"), Weight: 0},
		},
		Server: &record.Server{
			ID: 1 << 63, Group: 1<<63 + 1, RPC: netip.MustParseAddrPort("10.9.0.1:7401"), API: netip.MustParseAddrPort("[fd00::1]:7402"), Expect: 3, Term: 7, Learner: true,
		},
	}
}

func TestRoundTrip(t *testing.T) {
	for name, d := range map[string]record.Definition{"all": sample(), "empty": {}} {
		b, err := record.Encode(d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := record.Decode(b)
		if err != nil || !reflect.DeepEqual(got, d) {
			t.Errorf("%s: decoded\n%+v, %v\nwant\n%+v", name, got, err, d)
		}
		for range 20 { // maps are iterated in another order each time
			if again, _ := record.Encode(d); !bytes.Equal(again, b) {
				t.Fatalf("%s: encoded differently", name)
			}
		}
	}
}

// The bytes are named by their hash in the cluster and read by other versions.
func TestBytesStayWhatTheyAre(t *testing.T) {
	d := record.Definition{
		Advertise: netip.MustParseAddr("10.9.0.1"),
		Services:  []model.Service{{Key: key("a"), Ports: []model.ServicePort{{Port: 80, Protocol: model.TCP}}, Registered: 1}},
		Instances: []model.Instance{{ID: "i", Service: key("a"), Addr: netip.MustParseAddrPort("1.2.3.4:5"), Weight: 1}},
	}
	b, err := record.Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	const want = "0a040a0900011a140a0764656661756c741201611a04085010016002" + "22170a0169120764656661756c741a0161220601020304" + "0005"
	if got := fmt.Sprintf("%x", b); got != want {
		t.Errorf("encoded as\n%s, want\n%s", got, want)
	}
}

func TestUnknownFieldsAreSkipped(t *testing.T) {
	b, err := record.Encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	later := append([]byte{0xfa, 0x07, 3, 'n', 'e', 'w', 0xf9, 0x07, 1, 2, 3, 4, 5, 6, 7, 8}, b...) // 127: bytes, 127: fixed64
	got, err := record.Decode(later)
	if err != nil || !reflect.DeepEqual(got, sample()) {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	edit := func(f func(d *record.Definition)) record.Definition {
		d := sample()
		f(&d)
		return d
	}
	many := func(n int) (out []model.Instance) {
		for i := range n {
			out = append(out, model.Instance{ID: fmt.Sprint(i), Service: key("web"), Addr: netip.MustParseAddrPort("10.0.0.1:1")})
		}
		return out
	}
	long := strings.Repeat("x", record.MaxText+1)
	for _, c := range []struct {
		want string
		d    record.Definition
	}{
		{"8193 instances on one node, at most 8192", record.Definition{Instances: many(8193)}},
		{"8193 services", record.Definition{Services: make([]model.Service, 8193)}},
		{"advertise address 0.0.0.0", record.Definition{Advertise: netip.IPv4Unspecified()}},
		{"zone", record.Definition{Zone: long}},
		{"defined twice", edit(func(d *record.Definition) { d.Services[1].Key = key("web") })},
		{"want namespace and name", edit(func(d *record.Definition) { d.Services[1].Key = model.ServiceKey{Name: "a"} })},
		{"want namespace and name", edit(func(d *record.Definition) { d.Services[1].Key = key("a/b") })},
		{"65 ports", edit(func(d *record.Definition) { d.Services[0].Ports = make([]model.ServicePort, 65) })},
		{"port 0", edit(func(d *record.Definition) { d.Services[0].Ports[0].Port = 0 })},
		{"257 hosts", edit(func(d *record.Definition) { d.Services[0].Hosts = make([]string, 257) })},
		{"has a zone", edit(func(d *record.Definition) { d.Services[0].VIP = netip.MustParseAddr("fe80::1%eth0") })},
		{"below 0", edit(func(d *record.Definition) { d.Services[0].DrainTime = -1 })},
		{"intercept address", edit(func(d *record.Definition) { d.Services[0].Intercept[0] = netip.AddrPort{} })},
		{"33 methods", edit(func(d *record.Definition) { d.Services[0].Routes[0].Methods = make([]string, 33) })},
		{"UTF-8", edit(func(d *record.Definition) { d.Services[0].Routes[0].PathPrefix = "\xff" })},
		{"UTF-8", edit(func(d *record.Definition) { d.Services[0].Routes[0].Headers["x"] = long })},
		{"UTF-8", edit(func(d *record.Definition) { d.Services[0].Hosts[0] = long })},
		{"two instances", edit(func(d *record.Definition) { d.Instances[1].ID = "web-1" })},
		{"without an id", edit(func(d *record.Definition) { d.Instances[1].ID = "" })},
		{"where it listens", edit(func(d *record.Definition) { d.Instances[1].Addr = netip.MustParseAddrPort("0.0.0.0:80") })},
		{"instance of default/web", edit(func(d *record.Definition) { d.Instances[1].ID = long })},
		{"want namespace and name", edit(func(d *record.Definition) { d.Instances[1].Service = model.ServiceKey{} })},
	} {
		if _, err := record.Encode(c.d); !errors.Is(err, record.ErrRecord) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("encoded, error %v, want one with %q", err, c.want)
		}
	}
	big := sample()
	big.Services = nil
	for i := range 1024 {
		big.Services = append(big.Services, model.Service{Key: key(fmt.Sprint("s", i)), Hosts: []string{strings.Repeat("h", 1100)}})
	}
	if _, err := record.Encode(big); !errors.Is(err, record.ErrRecord) || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("too many bytes: %v", err)
	}
	if b, err := record.Encode(record.Definition{Instances: many(8192)}); err != nil {
		t.Errorf("8192 instances: %d bytes, %v", len(b), err)
	}
}

func TestDamagedDefinitionsAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"too long":           make([]byte, record.MaxBytes+1),
		"cut":                {0x1a, 5, 1},
		"bad tag":            {0x80},
		"bad varint":         {0x08, 0x80},
		"service no name":    {0x1a, 0},
		"too many services":  bytes.Repeat([]byte{0x1a, 0}, record.MaxServices+1),
		"too many instances": bytes.Repeat([]byte{0x22, 0}, record.MaxInstances+1),
		"too many ports":     part(3, bytes.Repeat([]byte{0x1a, 0}, record.MaxPorts+1)),
		"too many intercept": part(3, bytes.Repeat([]byte{0x2a, 0}, record.MaxPorts+1)),
		"too many hosts":     part(3, bytes.Repeat([]byte{0x4a, 0}, record.MaxRoutes+1)),
		"too many routes":    part(3, bytes.Repeat([]byte{0x52, 0}, record.MaxRoutes+1)),
		"too many headers":   part(3, part(10, bytes.Repeat([]byte{0x1a, 3, 0x0a, 1, 'a', 0x1a, 3, 0x0a, 1, 'b'}, record.MaxMatches))),
		"too many methods":   part(3, part(10, bytes.Repeat([]byte{0x22, 0}, record.MaxMatches+1))),
	} {
		if d, err := record.Decode(b); !errors.Is(err, record.ErrRecord) || !reflect.DeepEqual(d, record.Definition{}) {
			t.Errorf("%s: %+v, %v, want ErrRecord", name, d, err)
		}
	}
}

func part(field byte, b []byte) []byte {
	out := []byte{field<<3 | 2}
	for n := len(b); ; n >>= 7 {
		if n < 0x80 {
			out = append(out, byte(n))
			break
		}
		out = append(out, byte(n)|0x80)
	}
	return append(out, b...)
}

func FuzzDecode(f *testing.F) {
	b, err := record.Encode(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Add(part(3, part(10, []byte{0x1a, 0})))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := record.Decode(b)
		if err != nil {
			if !errors.Is(err, record.ErrRecord) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		again, err := record.Encode(d)
		if errors.Is(err, record.ErrRecord) && len(b) > record.MaxBytes/2 {
			return // written shorter than we do
		}
		if err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := record.Decode(again)
		if err != nil || !reflect.DeepEqual(back, d) {
			t.Fatalf("read %+v\nthen %+v, %v", d, back, err)
		}
	})
}
