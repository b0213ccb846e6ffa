package identity

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func secret(t *testing.T, n int) Secret {
	t.Helper()
	s, err := Parse([]byte(fmt.Sprintf("abcdefghijklmnopqrstuvwxyz-0123456789-%d\n", n)))
	if err != nil {
		t.Fatal(err)
	}
	return s[0]
}

func TestRequirement68Secrets(t *testing.T) {
	good, err := Generate(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		good:                               "",
		good + "\n":                        "",
		good + "\r\n":                      "",
		good + "\n" + good + "x\n":         "",
		"":                                 "line 1 is empty",
		"\n":                               "line 1 is empty",
		good + "\n\n":                      "line 2 is empty",
		good[:31]:                          "has 31 bytes; at least 32",
		strings.Repeat(good, 6):            "at most 256",
		good + " x":                        "white space",
		good + "\x07":                      "control characters",
		"\ufeff" + good:                    "not seen", // as editors put it at the beginning of a file
		good + "\xff":                      "no UTF-8",
		strings.Repeat("ab", 20):           "fewer than 10 different",
		"please-ChangeMe-abcdefghijklmnop": "placeholder",
		good + "\n" + good:                 "line 2 is there twice",
	} {
		got, err := Parse([]byte(text))
		if want == "" && (err != nil || len(got) == 0) {
			t.Errorf("%q: %v", text, err)
		}
		if want != "" && (!errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
		if err != nil && len(text) > 20 && strings.Contains(err.Error(), text[:20]) {
			t.Errorf("the error shows the secret: %v", err)
		}
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
			if shown := fmt.Sprintf(verb, got); len(got) > 0 && strings.Contains(shown, text[:20]) {
				t.Errorf("%s shows the secret: %s", verb, shown)
			}
		}
	}
}

func TestRequirement68Files(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	text, _ := Generate(rand.Reader)
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o640: 1, 0o604: 1} {
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		s, warnings, err := ReadFile(path)
		if err != nil || len(s) != 1 || len(warnings) != want {
			t.Errorf("mode %o: %v, %v, %v", mode, s, warnings, err)
		}
	}
	pipe := filepath.Join(dir, "pipe") // that nobody writes to
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for bad, want := range map[string]string{dir: "no regular file", filepath.Join(dir, "none"): "keygen", "/dev/null": "no regular file", pipe: "no regular file"} {
		if _, _, err := ReadFile(bad); !errors.Is(err, ErrSecret) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// One secret makes the same CA and gossip key everywhere, another cluster others.
func TestDerivation(t *testing.T) {
	a, _ := newAuthority("prod", secret(t, 1))
	b, _ := newAuthority("prod", secret(t, 1))
	c, _ := newAuthority("test", secret(t, 1))
	if !a.cert.Equal(b.cert) || a.cert.Equal(c.cert) {
		t.Error("the CA is not that of secret and cluster")
	}
	g, _ := secret(t, 1).GossipKey("prod")
	h, _ := secret(t, 1).GossipKey("test")
	if len(g) != 32 || string(g) == string(h) || string(g) == string(a.key.Seed()) {
		t.Error("keys of different purposes are the same")
	}
}

// clock is one node's idea of the time.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// end is a node that listens or dials.
type end struct {
	*Keeper
	*clock
}

func node(t *testing.T, cluster, id string, secrets ...Secret) end {
	t.Helper()
	c := &clock{time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	k, err := NewKeeper(cluster, Node{ID: "id-of-" + id, Name: id}, secrets, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return end{k, c}
}

// connect makes a connection and returns whom each side sees, and what each says.
func connect(t *testing.T, client *tls.Config, server end) (seen Node, clientErr, serverErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			said <- err
			return
		}
		defer raw.Close()
		conn := tls.Server(raw, server.Server())
		if err := conn.Handshake(); err != nil {
			said <- err
			return
		}
		seen, err = server.Peer(conn.ConnectionState())
		_, writeErr := conn.Write([]byte("hello"))
		said <- errors.Join(err, writeErr)
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn := tls.Client(raw, client)
	if clientErr = conn.Handshake(); clientErr == nil {
		_, clientErr = io.ReadFull(conn, make([]byte, 5))
	}
	return seen, clientErr, <-said
}

func TestRequirement69Connections(t *testing.T) {
	one, two := secret(t, 1), secret(t, 2)
	for name, c := range map[string]struct {
		client, server end
		meant          string
		late           time.Duration // of the client's clock
		client_, serv  error         // what each side says
	}{
		"one secret":        {client: node(t, "prod", "a", one), server: node(t, "prod", "b", one), meant: "b"},
		"any node":          {client: node(t, "prod", "a", one), server: node(t, "prod", "b", one)},
		"one in common":     {client: node(t, "prod", "a", one, two), server: node(t, "prod", "b", two, one)},
		"none in common":    {client: node(t, "prod", "a", one), server: node(t, "prod", "b", two), client_: ErrStranger},
		"one believes":      {client: node(t, "prod", "a", one, two), server: node(t, "prod", "b", two), serv: ErrStranger},
		"another cluster":   {client: node(t, "prod", "a", one), server: node(t, "test", "b", one), client_: ErrStranger},
		"another node":      {client: node(t, "prod", "a", one), server: node(t, "prod", "c", one), meant: "b", client_: ErrOtherNode},
		"a clock 23 h late": {client: node(t, "prod", "a", one), server: node(t, "prod", "b", one), late: 23 * time.Hour},
		"a clock 25 h late": {client: node(t, "prod", "a", one), server: node(t, "prod", "b", one), late: 25 * time.Hour, client_: ErrTime},
		"a clock 23 h fast": {client: node(t, "prod", "a", one), server: node(t, "prod", "b", one), late: -23 * time.Hour},
		"a clock 25 h fast": {client: node(t, "prod", "a", one), server: node(t, "prod", "b", one), late: -25 * time.Hour, client_: ErrTime},
	} {
		t.Run(name, func(t *testing.T) {
			c.client.at = c.client.at.Add(-c.late)
			if _, err := c.client.certificate(); err != nil { // as of its own clock
				t.Fatal(err)
			}
			seen, clientErr, serverErr := connect(t, c.client.Client(c.meant), c.server)
			switch {
			case c.client_ != nil:
				if !errors.Is(clientErr, c.client_) || serverErr == nil {
					t.Errorf("the client says %v, want %v; the server says %v", clientErr, c.client_, serverErr)
				}
			case c.serv != nil:
				if !errors.Is(serverErr, c.serv) || !strings.Contains(Explain(clientErr).Error(), "its log says why") {
					t.Errorf("the server says %v, want %v; the client says %v", serverErr, c.serv, Explain(clientErr))
				}
			case clientErr != nil || serverErr != nil || seen != (Node{ID: "id-of-a", Name: "a"}):
				t.Errorf("%v, %v, it is %+v", clientErr, serverErr, seen)
			}
		})
	}
}

// Without a certificate, and with one of the right CA for something else.
func TestRequirement69Strangers(t *testing.T) {
	server := node(t, "prod", "b", secret(t, 1))
	_, _, err := connect(t, &tls.Config{InsecureSkipVerify: true}, server)
	if err == nil || !strings.Contains(err.Error(), "didn't provide a certificate") {
		t.Errorf("%v", err)
	}
	a, _ := newAuthority("prod", secret(t, 1))
	ca := tls.Certificate{Certificate: [][]byte{a.cert.Raw}, PrivateKey: a.key}
	if _, _, err := connect(t, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{ca}}, server); !errors.Is(err, ErrStranger) {
		t.Errorf("the CA itself: %v", err)
	}
}

// A session is resumed only by somebody who is believed now.
func TestRequirement69ResumedSessionsAreVerified(t *testing.T) {
	one, two := secret(t, 1), secret(t, 2)
	server, client := node(t, "prod", "b", one), node(t, "prod", "a", one)
	conf := server.Server()
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	said := make(chan error, 4)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, err = conn.Write([]byte("hello"))
			said <- err
			conn.Close()
		}
	}()
	dial := client.Client("b")
	dial.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	dial.ServerName = "b"
	visit := func() (resumed bool, err error) {
		conn, err := tls.Dial("tcp", l.Addr().String(), dial)
		if err != nil {
			return false, err
		}
		defer conn.Close()
		_, err = io.ReadFull(conn, make([]byte, 5))
		return conn.ConnectionState().DidResume, err
	}
	if _, err := visit(); err != nil {
		t.Fatal(err)
	}
	if resumed, err := visit(); err != nil || !resumed {
		t.Fatalf("resumed %v, %v: the test needs a session that is", resumed, err)
	}
	if err := server.SetSecrets([]Secret{two}); err != nil {
		t.Fatal(err)
	}
	if _, err := visit(); err == nil {
		t.Error("a session went on although its secret is no longer believed")
	}
	if err := server.SetSecrets([]Secret{one}); err != nil {
		t.Fatal(err)
	}
	server.at = server.at.Add(Lifetime) // the client's certificate is over by then
	if _, err := visit(); err == nil {
		t.Error("a session went on although its certificate is over")
	}
}

// Secrets change on one node after the other, and all connect all the time.
func TestRotation(t *testing.T) {
	one, two := secret(t, 1), secret(t, 2)
	nodes := []end{node(t, "prod", "a", one), node(t, "prod", "b", one), node(t, "prod", "c", one)}
	for _, secrets := range [][]Secret{{one, two}, {two, one}, {two}} {
		for _, n := range nodes {
			if err := n.SetSecrets(secrets); err != nil {
				t.Fatal(err)
			}
			for _, from := range nodes {
				for _, to := range nodes {
					if _, clientErr, serverErr := connect(t, from.Client(to.node.Name), to); clientErr != nil || serverErr != nil {
						t.Fatalf("%s to %s, at %d secrets of %s: %v, %v", from.node, to.node, len(secrets), n.node, clientErr, serverErr)
					}
				}
			}
		}
	}
}

// A certificate is replaced long before it is over, and when the clock was wrong.
func TestRenewal(t *testing.T) {
	n := node(t, "prod", "a", secret(t, 1))
	serial := func() string {
		c, err := n.certificate()
		if err != nil {
			t.Fatal(err)
		}
		if n.at.Before(c.Leaf.NotBefore) || c.Leaf.NotAfter.Sub(n.at) < Lifetime/4 {
			t.Errorf("at %v the certificate is good from %v to %v", n.at, c.Leaf.NotBefore, c.Leaf.NotAfter)
		}
		return c.Leaf.SerialNumber.String()
	}
	first := serial()
	n.at = n.at.Add(Lifetime/4 - time.Second)
	if serial() != first {
		t.Error("it was replaced early")
	}
	n.at = n.at.Add(2 * time.Second)
	second := serial()
	if second == first {
		t.Error("it was not replaced")
	}
	n.at = n.at.Add(-10 * Lifetime)
	if serial() == second {
		t.Error("it was not replaced when the clock was set back")
	}
}
