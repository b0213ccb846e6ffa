package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/core/api/client"
	"github.com/fairlead/fairlead/test/certs"
	"github.com/fairlead/fairlead/test/short"
)

// TestAPIUnderTLS asks an agent that wants certificates, over TCP.
func TestAPIUnderTLS(t *testing.T) {
	dir, servers, clients := short.Dir(t), certs.New(t), certs.New(t)
	server, own, stranger := servers.Files("server"), clients.Files("client"), servers.Files("stranger")
	agent := newCommand(t)
	agent.start(append(agentArgs(dir, "n1"), "--node.in_memory", "--api.listen", "127.0.0.1:0",
		"--api.tls.cert", server.Cert, "--api.tls.key", server.Key, "--api.tls.client_ca", clients.File)...)
	agent.waitOutput(t, "msg=ready")
	defer func() { agent.signals <- terminate; agent.wait(t) }()
	c, err := client.Dial(t.Context(), filepath.Join(dir, "api.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	address := status.Listeners["api.listen"]

	tls := []string{"--api-cacert", servers.File, "--api-cert", own.Cert, "--api-key", own.Key}
	at := func(target string, more ...string) []string { return append([]string{"--api", target}, more...) }
	for name, c := range map[string]struct {
		environ, args []string
		want          string // of stderr; empty: it works
	}{
		"flags":           {nil, at("https://"+address, tls...), ""},
		"without https":   {nil, at(address, tls...), ""},
		"variables":       {[]string{"FAIRLEAD_API=https://" + address, "FAIRLEAD_API_CACERT=" + servers.File, "FAIRLEAD_API_CERT=" + own.Cert, "FAIRLEAD_API_KEY=" + own.Key}, nil, ""},
		"plain":           {nil, at(address), "name it https://" + address},
		"no authority":    {nil, at("https://" + address), "--api-cacert"},
		"no certificate":  {nil, at("https://"+address, tls[:2]...), "--api-cert"},
		"another's":       {nil, at("https://"+address, "--api-cacert", servers.File, "--api-cert", stranger.Cert, "--api-key", stranger.Key), "--api-cert"},
		"half a pair":     {nil, at("https://"+address, tls[:4]...), "--api-cert and --api-key go together"},
		"no such file":    {nil, at("https://"+address, "--api-cacert", "/nowhere"), "--api-cacert: open /nowhere: no such file or directory"},
		"no PEM":          {nil, at("https://"+address, "--api-cacert", own.Key), "there is no certificate in " + own.Key},
		"key of another":  {nil, at("https://"+address, "--api-cert", own.Cert, "--api-key", stranger.Key), "--api-cert " + own.Cert},
		"only the socket": {nil, at("https://"+address, append(tls, "--system")...), "socket"},
	} {
		cmd := newCommand(t)
		cmd.Environ = append(cmd.Environ, c.environ...)
		code := cmd.run(append([]string{"kv", "put", "colour", "blue"}, c.args...)...)
		switch got := cmd.err.String(); {
		case c.want == "" && code != 0:
			t.Errorf("%s: %d: %s", name, code, got)
		case c.want != "" && (code != 1 || strings.Count(got, "\n") != 1 || !strings.Contains(got, c.want)):
			t.Errorf("%s: %d: %q, want one line with %q", name, code, got, c.want)
		}
	}
}
