/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Publication: one aligned word that says which endpoint set a frontend has now.
 * User space replaces it by one store into mapped memory, so a reader sees the
 * old set or the new one, and never parts of both.
 *
 *	 63        48 47        32 31                             0
 *	┌────────────┬────────────┬────────────────────────────────┐
 *	│   flags    │   count    │      set: index of its header   │
 *	└────────────┴────────────┴────────────────────────────────┘
 */
#pragma once
#include "base.h"
#include "ids.h"

/* A frontend has two words: for sockets of the agent's network namespace, and for
 * those of others, to which loopback addresses mean something else. */
enum scope {
	SCOPE_HOME = 0,
	SCOPE_FOREIGN = 1,
	SCOPES = 2,
};

enum publication_flag {
	PUBLISHED = 1 << 0, /* absent: the id is not in use */
	REFUSES = 1 << 1,   /* without endpoints refuse; else pass */
	STICKY = 1 << 2,    /* client affinity */
};

typedef __u64 publication;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SCOPES); /* set by the loader */
	__type(key, __u32);
	__type(value, publication);
} publications SEC(".maps");

/* home is the cookie of the agent's network namespace. */
volatile const __u64 home = 0;

INLINE __u32 set_of(publication p) { return (__u32)p; }
INLINE __u32 count_of(publication p) { return (__u32)(p >> 32) & 0xffff; }
INLINE bool has_flag(publication p, enum publication_flag f) { return (p >> 48) & f; }

/* published returns 0 for a frontend that is being withdrawn. */
INLINE publication published(frontend_id id, __u64 netns)
{
	__u32 key = id * SCOPES + (netns == home ? SCOPE_HOME : SCOPE_FOREIGN);
	publication *p = bpf_map_lookup_elem(&publications, &key);

	return p ? atomic_load(p) : 0;
}
