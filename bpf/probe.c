//go:build ignore

// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Proves that the hook of a cgroup fires: it counts the connects to one port, and
 * alters nothing. */
#include "headers/address.h"

char licence[] SEC("license") = "Dual MIT/GPL";

/* port, in network order, is that of the listener that the probe dials. */
volatile const __u16 port = 0;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

SEC("cgroup/connect4")
int saw_connect4(struct bpf_sock_addr *ctx)
{
	__u32 key = 0;
	__u64 *n = bpf_map_lookup_elem(&seen, &key);

	if (n && port_of(ctx) == port)
		__sync_fetch_and_add(n, 1);
	return 1;
}
