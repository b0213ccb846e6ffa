/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Policy: may the processes of this cgroup talk to this service? It is asked
 * before an endpoint is chosen. What is not listed is allowed. */
#pragma once
#include "base.h"
#include "ids.h"

struct policy_key {
	__u64 cgroup;
	service_id service;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct policy_key);
	__type(value, __u32); /* present: denied */
} denials SEC(".maps");

/* policy_in_force is fixed when the programs are loaded: while there is no
 * policy the question costs nothing. */
volatile const bool policy_in_force = false;

INLINE bool allowed(service_id service)
{
	if (!policy_in_force)
		return true;

	struct policy_key key = {.cgroup = bpf_get_current_cgroup_id(), .service = service};

	return !bpf_map_lookup_elem(&denials, &key);
}
