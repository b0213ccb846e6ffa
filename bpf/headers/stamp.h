/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What user space keeps beside its work for the next process, in memory that
 * programs do not read: what is applied. */
#pragma once
#include "base.h"

#define STAMP_BYTES 1016

struct stamp {
	__u32 layout;
	__u32 bytes; /* of text; 0: nothing is said to be applied */
	char text[STAMP_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stamp);
} stamp SEC(".maps");
