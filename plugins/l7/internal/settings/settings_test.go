package settings

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

func TestDefaultsAreValid(t *testing.T) {
	s, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s, Default()) {
		t.Errorf("got %+v, want the defaults", s)
	}
}

func TestParse(t *testing.T) {
	s, err := Parse([]byte(`{"listen": ["127.0.0.1:0", "[::1]:0"], "admin": "127.0.0.1:1", "h2c": true, "grace": "1m", "tunnel_timeout": 0, "retries": 1, "trusted_proxies": "10.0.0.0/8,::1"}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Listen) != 2 || s.Admin != "127.0.0.1:1" || !s.H2C || s.Grace != time.Minute || s.Timeouts.Tunnel != 0 || s.Retry.Most != 1 || len(s.TrustedProxies) != 2 {
		t.Errorf("got %+v", s)
	}
	for text, want := range map[string]string{
		`{`: "object", `[]`: "object", `{} {}`: "behind", `{"listn": ""}`: "did you mean listen?", `{"retries": 1.5}`: "whole number",
		`{"retries": "1"}`: "number", `{"grace": true}`: "duration", `{"listen": 1}`: "list", `{"listen": [1]}`: "list", `{"listen": []}`: "empty",
		`{"zone": 1}`: "text", `{"h2c": 1}`: "true or false", `{"trusted_proxies": ["fe80::1%eth0"]}`: "network", `{"listen": ":80"}`: "0.0.0.0",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q in it", text, err, want)
		}
	}
	var p *Problem
	if _, err := Parse([]byte(`{"retries": 99}`)); !errors.As(err, &p) || p.Key != "retries" {
		t.Errorf("got %v, want a problem of retries", err)
	}
}

// Each key can be written as it is shown, and changes its own field only.
func TestKeys(t *testing.T) {
	other := map[string]string{
		"listen": "127.0.0.1:1,127.0.0.1:2", "admin": "127.0.0.1:9", "zone": "z", "access_log": "stderr", "trusted_proxies": "10.0.0.0/8", "h2c": "true",
	}
	for _, k := range Keys() {
		value := other[k.Name]
		switch k.kind {
		case kindInt:
			value = fmt.Sprint(k.min + 1)
		case kindDuration:
			value = "1.5s"
		default:
		}
		s := Default()
		if err := k.Set(&s, Text(value)); err != nil {
			t.Errorf("%s = %s: %v", k.Name, value, err)
		}
		if got := k.Show(s); got != value {
			t.Errorf("%s shows %q after it was set to %q", k.Name, got, value)
		}
		for _, o := range Keys() {
			if o.Name != k.Name && o.Show(s) != o.Show(Default()) {
				t.Errorf("setting %s changes %s", k.Name, o.Name)
			}
		}
		if k.Doc == "" || strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s has the documentation %q", k.Name, k.Doc)
		}
	}
}

// What the schema takes, Parse takes, and the other way round.
func TestSchema(t *testing.T) {
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(Schema())))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("urn:l7", document); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("urn:l7")
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		`{}`: true, `{"listen": "127.0.0.1:1"}`: true, `{"listen": ["127.0.0.1:1"]}`: true, `{"h2c": false}`: true, `{"retries": 5}`: true,
		`{"retries": 6}`: false, `{"h2c": "yes"}`: false, `{"nothing": 1}`: false, `{"listen": [1]}`: false, `{"retries": 1.5}`: false,
	} {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(v); (err == nil) != ok {
			t.Errorf("schema, %s: got %v", text, err)
		}
		if _, err := Parse([]byte(text)); (err == nil) != ok {
			t.Errorf("Parse, %s: got %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"listen": "127.0.0.1:1", "grace": "1s"}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse([]byte(text))
		if err == nil && s.Check() != nil {
			t.Errorf("%s was taken: %v", text, s.Check())
		}
		if err == nil && !json.Valid([]byte(text)) && strings.TrimSpace(text) != "" {
			t.Errorf("%q is no JSON", text)
		}
	})
}

func TestDidYouMean(t *testing.T) {
	for name, want := range map[string]string{"listn": "listen", "trustedProxies": "trusted_proxies", "trusted-proxies": "trusted_proxies", "retrys": "retries"} {
		if got := DidYouMean(name, Names()); got != "; did you mean "+want+"?" {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got := DidYouMean("xyzzy", []string{"a", "b"}); got != "; known are a, b" {
		t.Errorf("got %q", got)
	}
}
