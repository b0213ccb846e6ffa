/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Client affinity: a network namespace, which is the client that a host can tell
 * apart, stays with an endpoint until it has not asked for a while, or until the
 * endpoint takes no more connections. */
#pragma once
#include "base.h"
#include "endpoint.h"
#include "ids.h"
#include "publication.h"

/* Ids of services are not used again, so what one leaves behind is of no use to
 * another. */
struct client {
	__u64 netns;
	__u32 zero;
	service_id service;
};

struct bond {
	endpoint_id endpoint;
	__u64 last_ns; /* of the monotonic clock */
	__u32 set;     /* where it stood then */
	__u32 slot;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct client);
	__type(value, struct bond);
} bonds SEC(".maps");

#define SECOND_NS 1000000000ULL

/* find looks for an endpoint in a set, which is in the order of the ids. */
INLINE bool find(bool six, __u32 set, __u32 count, endpoint_id id, __u32 *slot)
{
	__u32 low = 0, high = count;

	/* A set has fewer than 2^16 slots. */
	for (int i = 0; i < 17 && low < high; i++) {
		struct endpoint e = {};
		__u32 middle = (low + high) / 2;

		if (!load_endpoint(six, set, middle, &e))
			return false;
		if (e.id == id) {
			*slot = middle;
			return true;
		}
		if (e.id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

/* recall_bond returns the slot that a client is bound to; false if it is free to
 * go to any. */
INLINE bool recall_bond(bool six, const struct client *c, publication p, __u32 seconds, __u64 now, __u32 *slot)
{
	struct bond *b = bpf_map_lookup_elem(&bonds, c);

	if (!b || now - b->last_ns >= seconds * SECOND_NS)
		return false;
	/* The element may be given to another client while we read it; so whatever
	 * it says about slots is checked against the set. */
	endpoint_id id = b->endpoint;
	__u32 at = b->slot;

	if (b->set == set_of(p) && at < count_of(p)) {
		struct endpoint e = {};

		if (load_endpoint(six, set_of(p), at, &e) && e.id == id) {
			*slot = at;
			return true;
		}
	}
	return find(six, set_of(p), count_of(p), id, slot);
}

INLINE void bind(const struct client *c, publication p, __u32 slot, endpoint_id id, __u64 now)
{
	struct bond b = {.endpoint = id, .last_ns = now, .set = set_of(p), .slot = slot};

	/* A bond that cannot be kept costs the client its affinity, not its
	 * connection. */
	bpf_map_update_elem(&bonds, c, &b, BPF_ANY);
}
