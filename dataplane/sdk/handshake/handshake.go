// Package handshake is what a host and the process of a provider have to agree
// on before they speak: the names of variables, the cookie, limits and exit
// codes. Package sdk obeys it; hosts import it.
//
// # Child mode
//
// The host starts the provider as a child and sets
//
//   - CookieKey=CookieValue, which says that a host is there;
//   - EnvSocketDir, the directory for the socket, 0700 and of the same user; or
//     EnvSocket, the socket itself, under which the next agent finds it;
//   - EnvHostFD and EnvOnHostLoss, see there.
//
// The provider answers with one line on its standard output, that of
// hashicorp/go-plugin: "1|1|unix|PATH|grpc|". It serves on PATH, beside the
// contract, grpc.health.v1.Health for HealthService and go-plugin's
// GRPCController, but neither its broker nor its stdio service. There is no TLS:
// the kernel says who connects, and only root and the provider's own user may.
package handshake

import (
	"net"
	"strconv"
)

// The cookie tells a provider that it was started by a host. It protects from
// mistakes, not from attacks.
const (
	CookieKey   = "FAIRLEAD_DATAPLANE_COOKIE"
	CookieValue = "b2f1a0d6f6c94c1c9e1a7f5d3c08e4d7"
)

// ProtocolVersion is the major version of the contract, the second field of the
// line. Minor versions are Info's protocol_minor.
const ProtocolVersion = 1

// ProtocolMinor is the highest minor version that this source tree speaks.
const ProtocolMinor = 0

// MaxLogBytes bounds the file that is the standard error of a provider which
// serves on without its host. The SDK sees to it with each line, and the host,
// while it is there, four times a second, for what does not come by the SDK.
const MaxLogBytes = 4 << 20

// PluginName is the key of the provider in go-plugin's set of plugins.
const PluginName = "dataplane"

// HealthService is the name under which grpc.health.v1.Health says SERVING. It
// tells that the process answers; the call Health of the contract tells whether
// the data path works.
const HealthService = "plugin"

// FilePrefix begins the name of a provider's executable.
const FilePrefix = "fairlead-dataplane-"

// Variables that a host sets for a child.
const (
	// EnvSocketDir is the directory in which the child makes its socket, under
	// a name of its own choice.
	EnvSocketDir = "PLUGIN_UNIX_SOCKET_DIR"
	// EnvSocket is the path of the socket. It takes precedence over EnvSocketDir.
	EnvSocket = "FAIRLEAD_SERVE_SOCKET"
	// EnvHostFD is the number of a file descriptor: the read end of a pipe whose
	// write end only the host holds. Its end of file says that the host is gone.
	// Without it a child looks at the id of its parent once a second.
	EnvHostFD = "FAIRLEAD_HOST_FD"
	// EnvOnHostLoss is HostLossExit (also if unset) or HostLossServe.
	EnvOnHostLoss = "FAIRLEAD_ON_HOST_LOSS"
	// EnvProtocolVersions lists the versions that a go-plugin host speaks.
	EnvProtocolVersions = "PLUGIN_PROTOCOL_VERSIONS"
)

// What a child does when its host is gone.
const (
	// HostLossExit: Shutdown(keep) and the end of the process, within a second.
	HostLossExit = "exit"
	// HostLossServe: go on serving on EnvSocket, where the next agent adopts it.
	// The host has to start the child in a session of its own.
	HostLossServe = "serve"
)

// Exit codes of a provider's process.
const (
	ExitOK     = 0 // it was asked to end, or its host is gone
	ExitFailed = 1 // it could not start or go on; standard error says why
	ExitUsage  = 2 // wrong arguments, or started by hand without any
	ExitPanic  = 2 // the provider panicked; a line with Panic says where
)

// Limits of the transport.
const (
	// MaxReceiveBytes bounds one message that either side takes.
	MaxReceiveBytes = 64 << 20
	// MaxSocketPathBytes bounds the path of a socket. The kernel takes 107
	// bytes; the rest is room for a temporary name beside it.
	MaxSocketPathBytes = 100
)

// Panic is the last thing that a provider writes to standard error if its code
// panics, as JSON on a line of its own.
type Panic struct {
	Panic string `json:"panic"` // the value
	Call  string `json:"call"`  // of the contract, such as "Reconcile"
	Stack string `json:"stack"`
}

// Line returns the answer of a child, without the line feed.
func Line(socket net.Addr) string {
	return "1|" + strconv.Itoa(ProtocolVersion) + "|" + socket.Network() + "|" + socket.String() + "|grpc|"
}
