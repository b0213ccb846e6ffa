/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Endpoint sets. A set is a run of slots in an array: its endpoints in the order of
 * their ids, each as often as its weight demands. But for its counter a slot is
 * never changed after it was published; it is used again only after every program
 * that could still read it has ended.
 *
 * A slot says all that a connection has to know, and counts it. So choosing costs
 * one line of memory, whatever the number of endpoints: no slot lies in two. */
#pragma once
#include "base.h"
#include "ids.h"

struct endpoint4 {
	__be32 address;
	__be16 port;
	__u16 zero;
	endpoint_id id;
	service_id service;
	service_place at;
	__u64 hits; /* how often it was chosen */
};

struct endpoint6 {
	__be32 address[4];
	__be16 port;
	__u16 zero[3];
	endpoint_id id;
	service_id service;
	service_place at;
	__u64 hits;
	__u64 spare[2];
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

/* endpoint is one slot, whatever its family. An IPv4 address is in address[3]. */
struct endpoint {
	__be32 address[4];
	__be16 port;
	endpoint_id id;
	service_id service;
	service_place at;
	__u64 *hits;
};

INLINE bool load_endpoint(bool six, __u32 set, __u32 slot, struct endpoint *e)
{
	__u32 key = set + slot;

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
		e->service = found->service;
		e->at = found->at;
		e->hits = &found->hits;
	} else {
		struct endpoint4 *found = bpf_map_lookup_elem(&endpoints4, &key);

		if (!found)
			return false;
		e->address[3] = found->address;
		e->port = found->port;
		e->id = found->id;
		e->service = found->service;
		e->at = found->at;
		e->hits = &found->hits;
	}
	return true;
}

/* hit counts on whatever processor: user space adds to the same word. */
INLINE void hit(const struct endpoint *e) { __sync_fetch_and_add(e->hits, 1); }
