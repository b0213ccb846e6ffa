// Package bpf holds the kernel half of the eBPF data plane: its C sources, the
// objects that clang made of them, and the Go types by which plugins/ebpf loads
// them. Nobody else imports it.
//
// # Picture
//
//	connect, sendto
//	     │  frontends4/6, by a hash of the address: key, word for home
//	     ▼  foreign4/6, beside them:                     word for others
//	socket.c ── headers/forward.h                  │ set, count, flags
//	     │                                         ▼
//	     │          endpoints4/6: slots of a set, one is chosen at random
//	     │          address, id, whose it is, hits ──► services: counts, name
//	     ▼
//	endpoint's address; sockets, datagrams: what was asked for ◄── headers/reverse.h
//
// All but the last are arrays in memory that user space writes. It writes a new
// endpoint set where no program looks, then publishes it by one atomic store; what
// is not published any more is used again only after every program that could have
// seen it has ended. So a program needs no lock, and a reader never sees a half of
// anything. A connect touches two lines of memory that only its service has: that of
// the frontend, and that of the slot, in which it is counted.
//
// The table of frontends is ours and no hash map of the kernel: that gives the
// element of a key that was deleted to another one at once, so that a program which
// found it may read what is another's.
//
// Each header is one concept and begins with what it means. socket.c attaches them
// to the hooks, destroy.c ends connections to endpoints that are gone, probe.c
// tests whether a hook fires.
//
// # Tests
//
// socket_test.c compiles the same headers and socket.c with a kernel that says what
// a test wants, as programs that the kernel runs for a test (BPF_PROG_TEST_RUN);
// lab_test.go sets the scene, verdicts_test.go says what has to come of it,
// index_test.go where frontends are found.
//
// # Licence
//
// What runs in the kernel is under the MIT licence or the GPL, version 2, as you
// choose (LICENSE in this folder): bpf_sock_destroy is offered to programs with a
// licence that the kernel counts as compatible with its own. Headers of the kernel
// (linux-libc-dev) and of libbpf (used under its BSD-2-Clause licence) are needed
// to compile; nothing of them is copied here.
package bpf

//go:generate go tool -modfile=../tools/go.mod bpf2go -tags linux -go-package bpf -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Iheaders" -no-global-types Socket socket.c
//go:generate go tool -modfile=../tools/go.mod bpf2go -tags linux -go-package bpf -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Iheaders" -no-global-types Destroy destroy.c
//go:generate go tool -modfile=../tools/go.mod bpf2go -tags linux -go-package bpf -cc clang -strip llvm-strip -cflags "-O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -Iheaders" -no-global-types Probe probe.c
