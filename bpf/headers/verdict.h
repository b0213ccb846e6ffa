/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Why a program did what it did. Each place that decides has one reason of its
 * own, counted for each CPU, so that the sum of the reasons is the traffic. */
#pragma once
#include "base.h"

/* The numbers are those of plugins/ebpf/internal/layout: only append. */
enum reason {
	FORWARDED = 0,      /* to an endpoint */
	NO_FRONTEND = 1,    /* passed: not an address of ours */
	OTHER_PROTOCOL = 2, /* passed: neither TCP nor UDP */
	WITHDRAWN = 3,      /* passed: the frontend is being removed */
	EMPTY_PASSED = 4,   /* passed: no endpoint, on_empty pass */
	EMPTY_REFUSED = 5,  /* refused: no endpoint */
	DENIED = 6,         /* refused: policy */
	NO_MEMORY = 7,      /* refused: the answer could not have been translated */
	UNTRACKED = 8,      /* forwarded, but the socket could not be marked */
	BROKEN = 9,         /* refused: a map names what is not there */
	KEPT = 10,          /* of the forwarded: by client affinity */
	REVERSED = 11,      /* a datagram shows its frontend as its source */
	PEER = 12,          /* a socket shows its frontend as its peer */
	REASONS
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} reasons SEC(".maps");

/* What a cgroup hook of a socket address returns. */
enum verdict {
	REFUSE = 0,
	PASS = 1,
};

/* has_retval tells whether this kernel lets a program choose the errno of a
 * refusal. Without, every refusal is EPERM. */
volatile const bool has_retval = true;

INLINE void count(enum reason why)
{
	__u32 key = why;
	__u64 *n = bpf_map_lookup_elem(&reasons, &key);

	if (n)
		(*n)++;
}

INLINE enum verdict pass(enum reason why)
{
	count(why);
	return PASS;
}

/* refuse lets the system call of the application fail with an errno. */
INLINE enum verdict refuse(enum reason why, int error)
{
	count(why);
	if (has_retval)
		bpf_set_retval(-error);
	return REFUSE;
}
