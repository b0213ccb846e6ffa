package health

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// backendsEnv makes the test binary a process of that many HTTP backends, so
// that the tests can tell their own CPU time from that of what they check.
const backendsEnv = "FAIRLEAD_HEALTH_TEST_BACKENDS"

// TestMain fails the package if a test leaves a goroutine behind.
func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(backendsEnv)); err == nil {
		serveBackends(n)
		return
	}
	goleak.VerifyTestMain(m)
}

// serveBackends prints the addresses of n HTTP servers and of one that speaks
// gRPC, and answers until its standard input ends.
func serveBackends(n int) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(l.Addr())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					var request [1024]byte
					if _, err := c.Read(request[:]); err == nil {
						_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"))
					}
					_ = c.Close()
				}()
			}
		}()
	}
	if l, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		fmt.Println(l.Addr())
		s := grpc.NewServer()
		grpc_health_v1.RegisterHealthServer(s, grpchealth.NewServer())
		go func() { _ = s.Serve(l) }()
	}
	fmt.Println()
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// backends starts a process of n HTTP backends and a last one for gRPC, ended
// with the test.
func backends(tb testing.TB, n int) []netip.AddrPort {
	tb.Helper()
	cmd := exec.Command(os.Args[0]) //nolint:gosec // this test itself
	cmd.Env = append(os.Environ(), backendsEnv+"="+strconv.Itoa(n))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("the backends: %v", err)
		}
	})
	var addrs []netip.AddrPort
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != ""; {
		addrs = append(addrs, netip.MustParseAddrPort(lines.Text()))
	}
	if len(addrs) != n+1 {
		tb.Fatalf("%d backends started, want %d", len(addrs), n+1)
	}
	return addrs
}
