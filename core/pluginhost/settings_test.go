package pluginhost

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const testSchema = `{
  "type": "object", "additionalProperties": false, "required": ["listen"],
  "$defs": {"port": {"type": "integer", "maximum": 65535}},
  "properties": {
    "listen": {"type": "string"},
    "workers": {"type": "integer", "minimum": 1},
    "ratio": {"type": "number"},
    "fast": {"type": "boolean"},
    "hosts": {"type": "array", "items": {"type": "string"}},
    "port": {"$ref": "#/$defs/port"},
    "limits": {"type": "object", "properties": {"conns": {"type": "integer"}}},
    "any": {}
  }
}`

func TestEncode(t *testing.T) {
	env := func(key string) bool { return strings.HasPrefix(key, "") }
	for _, test := range []struct {
		name   string
		values map[string]any
		text   bool // as from variables
		want   string
		errs   []string
	}{
		{
			name: "typed", values: map[string]any{"listen": ":80", "workers": 3, "ratio": 0.5, "fast": true, "limits": map[string]any{"conns": 2}},
			want: `{"fast":true,"limits":{"conns":2},"listen":":80","ratio":0.5,"workers":3}`,
		},
		{
			name: "text of variables", text: true, values: map[string]any{"listen": "80", "workers": "3", "ratio": "0.5", "fast": "true", "hosts": "a, b", "port": "80", "limits": `{"conns":2}`, "any": "5"},
			want: `{"any":"5","fast":true,"hosts":["a","b"],"limits":{"conns":2},"listen":"80","port":80,"ratio":0.5,"workers":3}`,
		},
		{name: "text of a file stays text", values: map[string]any{"listen": "x", "workers": "3"}, errs: []string{"f.yaml:7: plugins.l7.workers is wrong: got string, want integer"}},
		{name: "all at once", values: map[string]any{"workres": 1, "workers": 0, "limits": map[string]any{"conns": "x"}}, errs: []string{
			"f.yaml:7: plugins.l7.listen is missing", "f.yaml:7: plugins.l7.workres is not a setting of this plugin",
			"f.yaml:7: plugins.l7.workers is wrong: minimum: got 0, want 1", "plugins.l7.limits.conns is wrong: got string, want integer",
		}},
		{name: "text that is none", text: true, values: map[string]any{"listen": "x", "workers": "many"}, errs: []string{"plugins.l7.workers is wrong"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := Settings{Values: test.values, Origin: func(string) string { return "f.yaml:7" }}
			if test.text {
				s.Text = env
			}
			got, err := s.encode("l7", test.values, []byte(testSchema))
			if len(test.errs) == 0 {
				if err != nil || string(got) != test.want {
					t.Errorf("got %s, %v\nwant %s", got, err, test.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("got %s and no error", got)
			}
			for _, want := range test.errs {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
}

func TestEncodeWithoutOrWithBadSchema(t *testing.T) {
	s := Settings{}
	if got, err := s.encode("x", nil, nil); err != nil || string(got) != "{}" {
		t.Errorf("got %s, %v", got, err)
	}
	if _, err := s.encode("x", map[string]any{"a": 1}, nil); err == nil || !strings.Contains(err.Error(), "plugins.x.a is of no use") {
		t.Errorf("error is %v", err)
	}
	for _, schema := range []string{"{", `{"type": 5}`, `{"$ref": "https://example.com/schema.json"}`, `{"$ref": "file:///etc/passwd"}`} {
		if _, err := s.encode("x", nil, []byte(schema)); err == nil || !strings.Contains(err.Error(), "schema of plugin x") {
			t.Errorf("schema %s: error is %v", schema, err)
		}
	}
}

func TestSplit(t *testing.T) {
	h, rest, err := Settings{Values: map[string]any{keyOnHostLoss: "serve", keySocket: "unix:/run/x.sock", keyStartTimeout: "70s", "listen": 5}}.split("x", time.Second)
	if err != nil || !h.outlives || h.socket != "/run/x.sock" || h.timeout != 70*time.Second || len(rest) != 1 || rest["listen"] != 5 {
		t.Errorf("got %+v, %v, %v", h, rest, err)
	}
	if h, _, err := (Settings{}).split("x", time.Second); err != nil || h != (hosting{timeout: time.Second}) {
		t.Errorf("got %+v, %v", h, err)
	}
	for key, value := range map[string]any{
		keyOnHostLoss: "stay", keySocket: "relative.sock", keyStartTimeout: "5",
	} {
		_, _, err := Settings{Values: map[string]any{key: value}, Origin: func(string) string { return "env X" }}.split("x", time.Second)
		if err == nil || !strings.Contains(err.Error(), "env X: plugins.x."+key) {
			t.Errorf("%s: error is %v", key, err)
		}
	}
	long := map[string]any{keySocket: "/" + strings.Repeat("x", 120)}
	if _, _, err := (Settings{Values: long}).split("x", time.Second); err == nil || !strings.Contains(err.Error(), "121 bytes") {
		t.Errorf("error is %v", err)
	}
}

// Wrong settings keep the plugin from running, and only that one.
func TestWrongSettingsAreShown(t *testing.T) {
	r := newRig(t, "good")
	out := filepath.Join(t.TempDir(), "told")
	r.install("good", behaviour{Schema: testSchema, Out: out})
	r.cfg.Settings = map[string]Settings{"good": {
		Values: map[string]any{"listen": ":80", "workers": "none"}, Origin: func(key string) string { return "f.yaml:3" },
	}}
	h := r.start()
	s := waitState(t, h, "good", StateRejected)
	if !strings.Contains(s.Reason, "f.yaml:3: plugins.good.workers is wrong") {
		t.Errorf("reason is %s", s.Reason)
	}
	h.Stop()

	r.cfg.Settings["good"] = Settings{Values: map[string]any{"listen": ":80", "workers": "4"}, Text: func(string) bool { return true }}
	r.start()
	r.nextReady()
	var got told
	text, err := os.ReadFile(out)
	if err != nil || json.Unmarshal(text, &got) != nil {
		t.Fatal(err)
	}
	if got.Config != `{"listen":":80","workers":4}` {
		t.Errorf("configured with %s", got.Config)
	}
	r.waitLog("key=plugins.good.listen message=\"is unusual\"")
}

func TestWrongHostKeyIsAnErrorOfTheStart(t *testing.T) {
	r := newRig(t)
	r.cfg.Settings = map[string]Settings{"x": {Values: map[string]any{keyOnHostLoss: "perhaps"}}}
	if _, err := r.host().Start(t.Context()); err == nil || !strings.Contains(err.Error(), "plugins.x.on_host_loss is perhaps: want exit or serve") {
		t.Errorf("error is %v", err)
	}
}
