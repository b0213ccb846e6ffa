/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Frontend: an address, port and transport that is ours to answer for, and what is
 * said of it now.
 *
 * A table of our own in memory that user space writes: a line of memory is a bucket,
 * and what finds no room in its bucket is in one of the next. An entry is given to
 * another key only after every program that could have found it has ended, which no
 * hash map of the kernel promises: therefore the word that changes may stand beside
 * the key, and to find both costs one line. */
#pragma once
#include "base.h"
#include "ids.h"
#include "publication.h"

/* What is no key: transports are never 0. */
enum entry_key {
	ENTRY_FREE = 0, /* and no key of this bucket is in another one */
	/* All others: nothing is here, look on. User space knows which. */
};

#define WAYS4 4
#define WAYS6 2

struct entry4 {
	__u64 key; /* address, port, transport, 0 */
	publication home;
};

struct entry6 {
	__u64 key[3];
	publication home;
};

struct bucket4 {
	struct entry4 entry[WAYS4];
};

struct bucket6 {
	struct entry6 entry[WAYS6];
};

/* What sockets of other network namespaces are told, entry by entry. */
struct foreign4 {
	publication entry[WAYS4];
};

struct foreign6 {
	publication entry[WAYS6];
};

#define TABLE(name, bucket)                         \
	struct {                                    \
		__uint(type, BPF_MAP_TYPE_ARRAY);   \
		__uint(map_flags, BPF_F_MMAPABLE);  \
		__uint(max_entries, 1);             \
		__type(key, __u32);                 \
		__type(value, bucket);              \
	} name SEC(".maps")

/* As large as the loader says: a power of two. */
TABLE(frontends4, struct bucket4);
TABLE(frontends6, struct bucket6);
TABLE(foreign4, struct foreign4);
TABLE(foreign6, struct foreign6);

/* How many buckets there are, less one. */
volatile const __u32 mask4 = 0;
volatile const __u32 mask6 = 0;

/* How many buckets a key may be in. */
#define REACH 16

INLINE __u64 mix(__u64 x)
{
	x *= 0x9e3779b97f4a7c15ULL;
	return x ^ x >> 32;
}

/* published returns what is said of an address; false: it is nobody's. 0 is said of
 * one that is being withdrawn. */
INLINE bool published4(__be32 address, __be16 port, __u8 transport, enum scope scope, publication *p)
{
	union {
		struct {
			__be32 address;
			__be16 port;
			__u8 transport;
			__u8 zero;
		};
		__u64 word;
	} key = {{address, port, transport, 0}};
	__u32 at = (__u32)mix(mix(key.word));

	for (int i = 0; i < REACH; i++, at++) {
		__u32 bucket = at & mask4;
		struct bucket4 *b = bpf_map_lookup_elem(&frontends4, &bucket);
		bool full = true;

		if (!b)
			return false;
#pragma unroll
		for (int way = 0; way < WAYS4; way++) {
			__u64 found = atomic_load(&b->entry[way].key);

			if (found == key.word) {
				*p = atomic_load(&b->entry[way].home);
				if (scope == SCOPE_FOREIGN) {
					struct foreign4 *f = bpf_map_lookup_elem(&foreign4, &bucket);

					*p = f ? atomic_load(&f->entry[way]) : 0;
				}
				return true;
			}
			full = full && found != ENTRY_FREE;
		}
		if (!full)
			return false;
	}
	return false;
}

INLINE bool published6(const __be32 address[4], __be16 port, __u8 transport, enum scope scope, publication *p)
{
	union {
		struct {
			__be32 address[4];
			__be16 port;
			__u8 transport;
			__u8 zero[5];
		};
		__u64 word[3];
	} key = {{{address[0], address[1], address[2], address[3]}, port, transport, {}}};
	__u32 at = (__u32)mix(mix(mix(mix(key.word[0]) ^ key.word[1]) ^ key.word[2]));

	for (int i = 0; i < REACH; i++, at++) {
		__u32 bucket = at & mask6;
		struct bucket6 *b = bpf_map_lookup_elem(&frontends6, &bucket);
		bool full = true;

		if (!b)
			return false;
#pragma unroll
		for (int way = 0; way < WAYS6; way++) {
			/* The last word has the transport, and is written last. */
			__u64 found = atomic_load(&b->entry[way].key[2]);

			if (found == key.word[2] && b->entry[way].key[0] == key.word[0] && b->entry[way].key[1] == key.word[1]) {
				*p = atomic_load(&b->entry[way].home);
				if (scope == SCOPE_FOREIGN) {
					struct foreign6 *f = bpf_map_lookup_elem(&foreign6, &bucket);

					*p = f ? atomic_load(&f->entry[way]) : 0;
				}
				return true;
			}
			full = full && found != ENTRY_FREE;
		}
		if (!full)
			return false;
	}
	return false;
}
