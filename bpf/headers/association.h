/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Association: which frontend a socket was asked for, and which endpoint it was
 * given instead. It lives in the socket and dies with it. */
#pragma once
#include "address.h"
#include "base.h"
#include "ids.h"

/* An IPv4 address stands in the last word of an address, the others are 0: what
 * is of IPv6 and what is not never meet, as each hook knows its family. */
struct association {
	__be32 frontend[4];
	__be32 endpoint[4];
	__be16 frontend_port;
	__be16 endpoint_port;
	service_id service;
	endpoint_id id;
};

/* Of sockets that were connected. It also tells which ones to end when their
 * endpoint is gone. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct association);
} sockets SEC(".maps");

/* An unconnected socket talks to several at a time: a resolver asks up to three
 * servers and takes the first answer. */
#define RECENT 4

struct datagrams {
	struct association recent[RECENT]; /* none twice with one endpoint */
	__u32 next;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct datagrams);
} datagrams SEC(".maps");

INLINE bool same_endpoint(const struct association *a, const __be32 address[4], __be16 port)
{
	return a->endpoint_port == port && a->endpoint[3] == address[3] && a->endpoint[0] == address[0] &&
	       a->endpoint[1] == address[1] && a->endpoint[2] == address[2];
}

/* room_for_connect is where an association is to be written; 0: there is no memory. */
INLINE struct association *room_for_connect(struct bpf_sock_addr *ctx)
{
	return bpf_sk_storage_get(&sockets, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
}

/* forget_connect drops what an earlier connect of this socket left: connect with
 * AF_UNSPEC, which undoes one, runs no hook. */
INLINE void forget_connect(struct bpf_sock_addr *ctx)
{
	if (bpf_sk_storage_get(&sockets, ctx->sk, 0, 0))
		bpf_sk_storage_delete(&sockets, ctx->sk);
}

INLINE bool remember_datagram(struct bpf_sock_addr *ctx, const struct association *a)
{
	struct datagrams *d = bpf_sk_storage_get(&datagrams, ctx->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);

	if (!d)
		return false;
#pragma unroll
	for (int i = 0; i < RECENT; i++) {
		if (same_endpoint(&d->recent[i], a->endpoint, a->endpoint_port)) {
			d->recent[i] = *a;
			return true;
		}
	}
	d->recent[d->next++ & (RECENT - 1)] = *a;
	return true;
}

/* recall_datagram finds the frontend behind the source of a datagram. */
INLINE struct association *recall_datagram(struct bpf_sock_addr *ctx, const __be32 address[4], __be16 port)
{
	struct datagrams *d = bpf_sk_storage_get(&datagrams, ctx->sk, 0, 0);
	struct association *a;

	if (d) {
#pragma unroll
		for (int i = 0; i < RECENT; i++) {
			if (same_endpoint(&d->recent[i], address, port))
				return &d->recent[i];
		}
	}
	a = bpf_sk_storage_get(&sockets, ctx->sk, 0, 0);
	return a && same_endpoint(a, address, port) ? a : 0;
}

/* recall_peer finds the frontend behind the peer of a socket. */
INLINE struct association *recall_peer(struct bpf_sock_addr *ctx, const __be32 address[4], __be16 port)
{
	struct association *a = bpf_sk_storage_get(&sockets, ctx->sk, 0, 0);

	return a && same_endpoint(a, address, port) ? a : 0;
}
