package identity

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// However something of this package is printed, it shows no secret and no key.
func TestRequirement68NothingShowsASecret(t *testing.T) {
	text, err := Generate(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := Parse([]byte(text + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := NewKeeper("prod", Node{ID: "1", Name: "n1"}, secrets, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	key := keeper.authorities[0].key
	hidden := []string{text, text[:16], hex.EncodeToString(key[:8]), base64.StdEncoding.EncodeToString(key[:9]), fmt.Sprint([]byte(key[:4])), fmt.Sprint([]byte(text[:4]))}
	for name, v := range map[string]any{
		"secret": secrets[0], "pointer": &secrets[0], "secrets": secrets, "in a struct": struct{ S []Secret }{secrets}, "in a map": map[string]Secret{"s": secrets[0]},
		"keeper": keeper, "keeper's value": struct{ K *Keeper }{keeper}, "authority": keeper.authorities, "in a field that is not exported": struct{ s []Secret }{secrets}, "none": Secret{}, "in an error": fmt.Errorf("x: %v", secrets),
	} {
		var shown []string
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			shown = append(shown, fmt.Sprintf(verb, v))
		}
		if j, err := json.Marshal(v); err == nil {
			shown = append(shown, string(j))
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "v", v)
		shown = append(shown, log.String())
		for _, s := range shown {
			if i := slices.IndexFunc(append(hidden, hex.EncodeToString([]byte(text[:8]))), func(h string) bool { return strings.Contains(s, h) }); i >= 0 {
				t.Errorf("%s shows secret %d: %.300s", name, i, s)
			}
		}
	}
}

// Errors about bad files name the line and the fault, and nothing of the line.
func TestRequirement68ErrorsShowNoSecret(t *testing.T) {
	const part = "Zk3Jq9Xw7Lm2"
	path := filepath.Join(t.TempDir(), "secret")
	long := strings.Repeat(part, 3)
	for name, text := range map[string]string{
		"short": part, "blank": long + " " + long, "control": long + "\x01", "no UTF-8": long + "\xff", "long": strings.Repeat(part, 30),
		"placeholder": long + "changeme", "twice": long + "\n" + long, "empty line": long + "\n\n" + long, "carriage return": long + "\r" + long,
		"large": strings.Repeat(long+"\n", 3000),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := ReadFile(path)
		if !errors.Is(err, ErrSecret) || strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), part[:6]) {
			t.Errorf("%s: %#v", name, err)
		}
	}
}
