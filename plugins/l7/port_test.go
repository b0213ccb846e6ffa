package l7

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/test/await"
)

// Under an agent, a port that somebody else has is told with its address, and
// taken once it is free.
func TestPortInUseUnderAnAgent(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:"+freePort(t)) // nobody else is given it once it is free
	if err != nil {
		t.Fatal(err)
	}
	a := backend(t, "a")
	n := newNode(t)
	listen := taken.Addr().String()
	agent := n.agent("l7", fmt.Sprintf("{l7: {listen: %q}}", listen), address(a))
	agent.says(`listen ` + listen + `: the port is in use`)
	await.For(t, "plugin list says why", func() bool {
		out, _ := exec.Command(programs.path(t, "fairlead"), "plugin", "list", "--api", n.socket(), "-o", "json").CombinedOutput()
		return strings.Contains(string(out), "listen "+listen+": the port is in use")
	})
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	// The agent waits longer after each try; somebody who freed the port need not.
	if out, err := exec.Command(programs.path(t, "fairlead"), "plugin", "restart", "l7", "--api", n.socket()).CombinedOutput(); err != nil {
		t.Errorf("plugin restart: %v: %s", err, out)
	}
	answers(t, listen, "a")
}
