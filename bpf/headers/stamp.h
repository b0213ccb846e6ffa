/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What user space keeps beside its work for the next process, in memory that
 * programs do not read: what is applied, and the names of the services. */
#pragma once
#include "ids.h"

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

#define NAME_BYTES 128

struct service_name {
	char text[NAME_BYTES]; /* NAMESPACE/NAME, then zeros */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, service_id);
	__type(value, struct service_name);
} services SEC(".maps");
