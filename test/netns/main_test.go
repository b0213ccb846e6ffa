package netns

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// helperVariable makes the test binary play one of the programs that the tests start in nodes.
const helperVariable = "NETNS_HELPER"

func TestMain(m *testing.M) {
	mode := os.Getenv(helperVariable)
	if mode == "isolate" { // a test binary that isolates its tests
		os.Exit(Main(m))
	}
	if mode != "" {
		os.Exit(helper(mode))
	}
	before, _ := os.Readlink("/proc/self/ns/net")
	code := m.Run()
	if after, _ := os.Readlink("/proc/self/ns/net"); after != before {
		fmt.Printf("FAIL: the tests moved the first thread of the process from namespace %s to %s\n", before, after)
		code = 1
	}
	os.Exit(code)
}

// helper plays a program and returns its exit code.
func helper(mode string) int {
	switch mode {
	case "count": // prints for ever, so that one can see whether it runs
		for i := 0; ; i++ {
			fmt.Println("line", i)
		}
	case "wait": // ends by SIGTERM only, with code 7
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		fmt.Println("ready")
		fmt.Fprintln(os.Stderr, "ready too")
		<-terminated
		return 7
	case "variables":
		fmt.Print(os.Getenv("FAIRLEAD_NODE_NAME"), "|", os.Getenv("EXTRA"))
	case "parent": // leaves a child in a session of its own, out of reach of the process group
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), helperVariable+"=wait")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println("child", child.Process.Pid)
		select {}
	case "killed": // a test binary that dies with a topology up
		topo, err := build(Options{Nodes: 2})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		p, err := topo.Node(0).start(os.Args[0], nil, []string{helperVariable + "=wait"})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		orphan, err := topo.Node(1).start(os.Args[0], nil, []string{helperVariable + "=parent"})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(p.Pid(), orphan.Pid(), topo.Node(0).Namespace(), topo.Node(1).Namespace())
		select {}
	}
	return 0
}

// startHelper starts a mode of this binary in a node.
func startHelper(t *testing.T, n *Node, mode string, env ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return n.Start(self, nil, append(env, helperVariable+"="+mode)...)
}
