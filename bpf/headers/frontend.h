/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Frontend: an address, port and transport that is ours to answer for. It leads
 * to a small number, its id, which is written once and stays while the frontend
 * does: a hash element may be given to another key while a program still reads
 * it, so nothing that ever changes may be its value. */
#pragma once
#include "base.h"
#include "ids.h"

struct frontend4 {
	__be32 address;
	__be16 port;
	__u8 transport;
	__u8 zero;
};

struct frontend6 {
	__be32 address[4];
	__be16 port;
	__u8 transport;
	__u8 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, struct frontend4);
	__type(value, frontend_id);
} frontends4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* set by the loader */
	__type(key, struct frontend6);
	__type(value, frontend_id);
} frontends6 SEC(".maps");
