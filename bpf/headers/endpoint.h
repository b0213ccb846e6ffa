/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Endpoint sets. A set is a run of slots in an array: its header, then its
 * endpoints in the order of their ids, each as often as its weight demands. A set
 * is never changed after it was published; the slots are used again only after
 * every program that could still read them has ended. */
#pragma once
#include "base.h"
#include "ids.h"

struct header {
	service_id service;
	__u32 affinity_seconds;
	__u64 zero;
};

struct endpoint4 {
	__be32 address;
	__be16 port;
	__u16 zero;
	endpoint_id id;
};

struct endpoint6 {
	__be32 address[4];
	__be16 port;
	__u16 zero[3];
	endpoint_id id;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct endpoint4);
} endpoints4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct endpoint6);
} endpoints6 SEC(".maps");

/* How often each slot was chosen. User space adds it up by endpoint before the
 * slot is used again. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u64);
} hits4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, __u64);
} hits6 SEC(".maps");

/* endpoint is one slot, whatever its family. An IPv4 address is in address[3]. */
struct endpoint {
	__be32 address[4];
	__be16 port;
	endpoint_id id;
};

INLINE bool load_header(bool six, __u32 set, struct header *h)
{
	struct header *found;

	if (six)
		found = bpf_map_lookup_elem(&endpoints6, &set);
	else
		found = bpf_map_lookup_elem(&endpoints4, &set);
	if (!found)
		return false;
	h->service = found->service;
	h->affinity_seconds = found->affinity_seconds;
	return true;
}

INLINE bool load_endpoint(bool six, __u32 set, __u32 slot, struct endpoint *e)
{
	__u32 key = set + 1 + slot;

	if (six) {
		struct endpoint6 *found = bpf_map_lookup_elem(&endpoints6, &key);

		if (!found)
			return false;
		e->address[0] = found->address[0];
		e->address[1] = found->address[1];
		e->address[2] = found->address[2];
		e->address[3] = found->address[3];
		e->port = found->port;
		e->id = found->id;
	} else {
		struct endpoint4 *found = bpf_map_lookup_elem(&endpoints4, &key);

		if (!found)
			return false;
		e->address[3] = found->address;
		e->port = found->port;
		e->id = found->id;
	}
	return true;
}

INLINE void hit(bool six, __u32 set, __u32 slot)
{
	__u32 key = set + 1 + slot;
	__u64 *n;

	if (six)
		n = bpf_map_lookup_elem(&hits6, &key);
	else
		n = bpf_map_lookup_elem(&hits4, &key);
	if (n)
		__sync_fetch_and_add(n, 1);
}
