package identity

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
	"unique"
)

// Secret is one line of a secret file. It prints as its length only. Equal ones
// are equal.
type Secret struct {
	// A handle, as fmt asks no method of a field that is not exported: in one of
	// another struct it would print a text, and prints an address of this.
	handle unique.Handle[string]
}

func secretOf(text string) Secret { return Secret{unique.Make(text)} }

func (s Secret) text() string {
	if s == (Secret{}) {
		return ""
	}
	return s.handle.Value()
}

// Bounds of a secret, in bytes.
const (
	MinSecretBytes = 32
	MaxSecretBytes = 256
	maxSecrets     = 16
	maxFileBytes   = 64 << 10
)

// ErrSecret wraps what is wrong with secrets. It never holds one.
var ErrSecret = errors.New("identity: the secret cannot be used")

// String hides the secret.
func (s Secret) String() string { return fmt.Sprintf("secret of %d bytes", len(s.text())) }

// Format implements fmt.Formatter: it hides the secret under every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// Generate returns a line for a secret file: 32 random bytes, as base64url.
func Generate(random io.Reader) (string, error) {
	b := make([]byte, 32)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("identity: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(b), nil
}

// ReadFile reads a secret file. Warnings are about who else can read it.
func ReadFile(path string) (secrets []Secret, warnings []string, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe that nobody writes to would be waited for
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("%w: %w: bring it from another node, or make the first with `fairlead keygen --out %s`", ErrSecret, err, path)
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("%w: %w", ErrSecret, err)
	case !info.Mode().IsRegular():
		return nil, nil, fmt.Errorf("%w: %s is no regular file", ErrSecret, path)
	case info.Size() > maxFileBytes:
		return nil, nil, fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrSecret, path, info.Size(), maxFileBytes)
	case info.Mode().Perm()&0o077 != 0:
		warnings = append(warnings, fmt.Sprintf("%s has mode %04o: others than its owner can use it; chmod 0600 %s", path, info.Mode().Perm(), path))
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrSecret, err)
	}
	secrets, err = Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: in %s", err, path)
	}
	return secrets, warnings, nil
}

// Parse reads secrets, one a line. A line may end in LF or CRLF.
func Parse(data []byte) ([]Secret, error) {
	var out []Secret
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		text := string(bytes.TrimSuffix(line, []byte("\r")))
		if why := weak(text); why != "" {
			return nil, fmt.Errorf("%w: line %d %s; `fairlead keygen` makes one", ErrSecret, i+1, why)
		}
		if slices.Contains(out, secretOf(text)) {
			return nil, fmt.Errorf("%w: line %d is there twice", ErrSecret, i+1)
		}
		out = append(out, secretOf(text))
	}
	if len(out) > maxSecrets {
		return nil, fmt.Errorf("%w: there are %d, at most %d are of use: remove the oldest", ErrSecret, len(out), maxSecrets)
	}
	return out, nil
}

// weak says what is wrong with a secret, "" if nothing is known to be.
func weak(text string) string {
	distinct := map[rune]bool{}
	for _, r := range text {
		distinct[r] = true
	}
	lower := strings.ToLower(text)
	switch {
	case text == "":
		return "is empty"
	case len(text) < MinSecretBytes:
		return fmt.Sprintf("has %d bytes; at least %d are needed", len(text), MinSecretBytes)
	case len(text) > MaxSecretBytes:
		return fmt.Sprintf("has %d bytes; at most %d are taken", len(text), MaxSecretBytes)
	case !utf8.ValidString(text):
		return "is no UTF-8 text"
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return "has white space or control characters in it, or others that are not seen"
	case len(distinct) < 10:
		return "has fewer than 10 different characters"
	case slices.ContainsFunc([]string{"changeme", "change-me", "change_me", "replace-me", "replaceme", "your-secret", "placeholder", "0123456789abcdef0123456789abcdef"}, func(p string) bool {
		return strings.Contains(lower, p)
	}):
		return "is a placeholder that everybody knows"
	}
	return ""
}

// derive makes key material of a secret for one purpose.
func (s Secret) derive(cluster, purpose string, size int) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, []byte(s.text()), []byte("fairlead/"+cluster), purpose, size)
	if err != nil {
		return nil, fmt.Errorf("identity: %w", err)
	}
	return key, nil
}

// GossipKey returns the key of a secret for gossip: 32 bytes.
func (s Secret) GossipKey(cluster string) ([]byte, error) { return s.derive(cluster, "gossip v1", 32) }
