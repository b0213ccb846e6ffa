/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Publication: one aligned word that says which endpoint set a frontend has now, or
 * whose it is while it has no endpoints.
 * User space replaces it by one store into mapped memory, so a reader sees the
 * old set or the new one, and never parts of both.
 *
 *	 63        48 47        32 31                             0
 *	┌────────────┬────────────┬────────────────────────────────┐
 *	│   flags    │   count    │ set: its first slot; if count   │
 *	│            │            │ is 0, the place of the service  │
 *	└────────────┴────────────┴────────────────────────────────┘
 */
#pragma once
#include "base.h"
#include "ids.h"

/* A frontend has two words: for sockets of the agent's network namespace, and for
 * those of others, to which loopback addresses mean something else. */
enum scope {
	SCOPE_HOME,
	SCOPE_FOREIGN,
};

enum publication_flag {
	PUBLISHED = 1 << 0, /* absent: the frontend is being withdrawn */
	REFUSES = 1 << 1,   /* without endpoints refuse; else pass */
	STICKY = 1 << 2,    /* client affinity */
};

typedef __u64 publication;

/* home is the cookie of the agent's network namespace. */
volatile const __u64 home = 0;

INLINE enum scope scope_of(__u64 netns) { return netns == home ? SCOPE_HOME : SCOPE_FOREIGN; }

INLINE __u32 set_of(publication p) { return (__u32)p; }
INLINE service_place service_of(publication p) { return (__u32)p; } /* if count_of(p) is 0 */
INLINE __u32 count_of(publication p) { return (__u32)(p >> 32) & 0xffff; }
INLINE bool has_flag(publication p, enum publication_flag f) { return (p >> 48) & f; }
