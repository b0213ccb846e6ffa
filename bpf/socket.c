//go:build ignore

// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The programs of the data plane: one for each hook at which the kernel asks
 * about the address of a socket, attached to a cgroup. */
#include "headers/forward.h"
#include "headers/reverse.h"
#include "headers/stamp.h"

char licence[] SEC("license") = "Dual MIT/GPL";

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx) { return forward4(ctx, CONNECT, false); }

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx) { return forward6(ctx, CONNECT); }

SEC("cgroup/sendmsg4")
int sendmsg4(struct bpf_sock_addr *ctx) { return forward4(ctx, SEND, false); }

SEC("cgroup/sendmsg6")
int sendmsg6(struct bpf_sock_addr *ctx) { return forward6(ctx, SEND); }

SEC("cgroup/recvmsg4")
int recvmsg4(struct bpf_sock_addr *ctx) { return reverse4(ctx, SOURCE, false); }

SEC("cgroup/recvmsg6")
int recvmsg6(struct bpf_sock_addr *ctx) { return reverse6(ctx, SOURCE); }

SEC("cgroup/getpeername4")
int getpeername4(struct bpf_sock_addr *ctx) { return reverse4(ctx, REMOTE, false); }

SEC("cgroup/getpeername6")
int getpeername6(struct bpf_sock_addr *ctx) { return reverse6(ctx, REMOTE); }
