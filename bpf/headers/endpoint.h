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

/* place is where a slot is. */
struct place {
	struct endpoint4 *four;
	struct endpoint6 *six;
};

/* endpoint is one slot, whatever its family. An IPv4 address is in address[3]. */
struct endpoint {
	__be32 address[4];
	__be16 port;
	endpoint_id id;
	service_id service;
	service_place at;
	__u64 *hits;
};

/* approach finds a slot, and begins to bring its line of memory here without waiting
 * for it: a store, unlike a load, is not waited for. It stores what is there. */
INLINE bool approach(bool six, __u32 set, __u32 slot, struct place *p)
{
	__u32 key = set + slot;

	if (six) {
		p->six = bpf_map_lookup_elem(&endpoints6, &key);
		if (!p->six)
			return false;
		*(volatile __u16 *)&p->six->zero[0] = 0;
	} else {
		p->four = bpf_map_lookup_elem(&endpoints4, &key);
		if (!p->four)
			return false;
		*(volatile __u16 *)&p->four->zero = 0;
	}
	return true;
}

INLINE void read_endpoint(bool six, const struct place *p, struct endpoint *e)
{
	if (six) {
		e->address[0] = p->six->address[0];
		e->address[1] = p->six->address[1];
		e->address[2] = p->six->address[2];
		e->address[3] = p->six->address[3];
		e->port = p->six->port;
		e->id = p->six->id;
		e->service = p->six->service;
		e->at = p->six->at;
		e->hits = &p->six->hits;
	} else {
		e->address[3] = p->four->address;
		e->port = p->four->port;
		e->id = p->four->id;
		e->service = p->four->service;
		e->at = p->four->at;
		e->hits = &p->four->hits;
	}
}

INLINE bool load_endpoint(bool six, __u32 set, __u32 slot, struct endpoint *e)
{
	struct place p = {};

	if (!approach(six, set, slot, &p))
		return false;
	read_endpoint(six, &p, e);
	return true;
}

/* hit counts on whatever processor: user space adds to the same word. */
INLINE void hit(const struct endpoint *e) { __sync_fetch_and_add(e->hits, 1); }
