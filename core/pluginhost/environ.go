package pluginhost

import (
	"strconv"
	"strings"

	"github.com/fairlead/fairlead/dataplane/sdk/handshake"
)

// defaultPath is PATH for a child whose agent has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// inherited are the only variables of the agent that a child sees. Everything
// else may be a secret, or change what the child does.
func inherited() []string { return []string{"PATH", "TZ", "LANG", "TMPDIR"} }

// childEnviron returns the environment of a child. socket may be empty: then
// the child chooses a name in socketDir.
func childEnviron(environ []string, socketDir, socket string, hostFD int, outlives bool) []string {
	var out []string
	path := false
	for _, name := range inherited() {
		if v, ok := lookup(environ, name); ok {
			out = append(out, name+"="+v)
			path = path || name == "PATH"
		}
	}
	if !path {
		out = append(out, "PATH="+defaultPath)
	}
	loss := handshake.HostLossExit
	if outlives {
		loss = handshake.HostLossServe
	}
	out = append(out,
		handshake.EnvSocketDir+"="+socketDir,
		handshake.EnvHostFD+"="+strconv.Itoa(hostFD),
		handshake.EnvOnHostLoss+"="+loss,
	)
	if socket != "" {
		out = append(out, handshake.EnvSocket+"="+socket)
	}
	return out
}

// lookup returns the last value of a name, as a new process would see it.
func lookup(environ []string, name string) (value string, ok bool) {
	for _, entry := range environ {
		if v, found := strings.CutPrefix(entry, name+"="); found {
			value, ok = v, true
		}
	}
	return value, ok
}
