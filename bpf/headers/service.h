/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Services: what is said of one whatever its endpoints are, and how often it could
 * not be what was asked of it. A program that finds an endpoint needs none of this,
 * unless clients stay with theirs. */
#pragma once
#include "base.h"
#include "ids.h"
#include "verdict.h"

/* What is counted of a service beside the hits of its endpoints. The numbers are
 * those of plugins/ebpf/internal/layout: only append. */
enum service_count {
	SERVICE_PAST = 0, /* hits of endpoints that it has no more; user space counts */
	SERVICE_EMPTY_PASSED = 1,
	SERVICE_EMPTY_REFUSED = 2,
	SERVICE_DENIED = 3,
	SERVICE_NO_MEMORY = 4,
	SERVICE_UNTRACKED = 5,
	SERVICE_COUNTS = 7 /* as many as fill a line of memory */
};

#define NAME_BYTES 128

struct service {
	service_id id; /* 0: nobody is here */
	__u32 affinity_seconds; /* if nobody is here: the id of the last one */
	__u64 counts[SERVICE_COUNTS];
	char name[NAME_BYTES]; /* NAMESPACE/NAME, then zeros; for the next process */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, __u32);
	__type(value, struct service);
} services SEC(".maps");

INLINE struct service *service_at(service_place at) { return bpf_map_lookup_elem(&services, &at); }

INLINE void count_of_service(struct service *s, enum service_count what)
{
	if (s)
		__sync_fetch_and_add(&s->counts[what], 1);
}
