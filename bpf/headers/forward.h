/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The way forward: from the address that an application asked for to the one that
 * the kernel connects or sends to. */
#pragma once
#include "address.h"
#include "affinity.h"
#include "association.h"
#include "base.h"
#include "endpoint.h"
#include "flow.h"
#include "frontend.h"
#include "policy.h"
#include "publication.h"
#include "verdict.h"

enum operation {
	CONNECT,
	SEND, /* of a datagram with an address of its own */
};

/* any picks a slot. Datagrams of one socket stay together while the number of
 * slots does: their receiver may keep state for the sender. */
INLINE __u32 any(struct bpf_sock_addr *ctx, enum operation op, __u32 count)
{
	__u32 number;

	if (op == SEND) {
		__u64 mixed = bpf_get_socket_cookie(ctx) * 0x9e3779b97f4a7c15ULL;

		number = mixed >> 32;
	} else {
		number = bpf_get_prandom_u32();
	}
	/* As fair as a remainder, and no division. */
	return ((__u64)number * count) >> 32;
}

INLINE enum verdict untouched(struct bpf_sock_addr *ctx, enum operation op, enum reason why)
{
	if (op == CONNECT)
		forget_connect(ctx);
	return pass(why);
}

/* forward fills in a->endpoint, which the caller writes into the context if the
 * answer is FORWARDED or UNTRACKED; any other reason comes with its verdict. */
INLINE enum reason forward(struct bpf_sock_addr *ctx, bool six, enum operation op, __u8 transport, frontend_id id,
			   struct association *a, enum verdict *verdict)
{
	__u64 netns = bpf_get_netns_cookie(ctx);
	publication p = published(id, netns);
	struct endpoint e = {};
	struct header h;
	__u32 slot;

	/* The frontend was found, and its id taken back since. */
	if (!has_flag(p, PUBLISHED)) {
		*verdict = untouched(ctx, op, WITHDRAWN);
		return WITHDRAWN;
	}
	/* User space sizes the arrays, so a set outside of them is its mistake.
	 * Nothing good can come of going on. */
	if (!load_header(six, set_of(p), &h)) {
		*verdict = refuse(BROKEN, ECONNREFUSED);
		return BROKEN;
	}
	a->service = h.service;

	/* The processes of this cgroup may not talk to the service. */
	if (!allowed(h.service)) {
		report(six, transport, DENIED, netns, a);
		*verdict = refuse(DENIED, EPERM);
		return DENIED;
	}
	if (count_of(p) == 0) {
		/* A port of this node whose own listener answers while nobody else
		 * does. */
		if (!has_flag(p, REFUSES)) {
			report(six, transport, EMPTY_PASSED, netns, a);
			*verdict = untouched(ctx, op, EMPTY_PASSED);
			return EMPTY_PASSED;
		}
		/* A service without a living instance, as a host without a listener
		 * answers. */
		report(six, transport, EMPTY_REFUSED, netns, a);
		*verdict = refuse(EMPTY_REFUSED, ECONNREFUSED);
		return EMPTY_REFUSED;
	}

	bool sticky = has_flag(p, STICKY), kept = false;
	struct client c = {.netns = netns, .frontend = id, .service = h.service};
	__u64 now = sticky ? bpf_ktime_get_ns() : 0;

	if (sticky)
		kept = recall_bond(six, &c, p, h.affinity_seconds, now, &slot);
	if (!kept)
		slot = any(ctx, op, count_of(p));
	/* As with the header. */
	if (!load_endpoint(six, set_of(p), slot, &e)) {
		*verdict = refuse(BROKEN, ECONNREFUSED);
		return BROKEN;
	}
	if (kept)
		count(KEPT);
	if (sticky)
		bind(&c, p, slot, e.id, now);

	if (six) {
		a->endpoint[0] = e.address[0];
		a->endpoint[1] = e.address[1];
		a->endpoint[2] = e.address[2];
	}
	a->endpoint[3] = e.address[3];
	a->endpoint_port = e.port;
	a->id = e.id;

	enum reason why = FORWARDED;

	if (op == SEND) {
		/* The answer would show an address that the sender never asked, and
		 * be dropped: better fail now, and be tried again. */
		if (!remember_datagram(ctx, a)) {
			report(six, transport, NO_MEMORY, netns, a);
			*verdict = refuse(NO_MEMORY, ENOMEM);
			return NO_MEMORY;
		}
	} else if (!remember_connect(ctx, a)) {
		/* The connection works all the same; it shows the endpoint as its
		 * peer, and outlives it. */
		why = UNTRACKED;
	}
	hit(six, set_of(p), slot);
	report(six, transport, why, netns, a);
	/* A living instance was found. */
	*verdict = pass(why);
	return why;
}

INLINE enum verdict forward4(struct bpf_sock_addr *ctx, enum operation op, bool mapped)
{
	__u8 transport = transport_of(ctx);
	__be32 address = mapped ? ctx->user_ip6[3] : ctx->user_ip4;
	struct frontend4 f = {.address = address, .port = port_of(ctx), .transport = transport};
	frontend_id *id;

	/* Raw sockets and the like have no ports that a service could have. */
	if (!transport)
		return pass(OTHER_PROTOCOL);
	id = bpf_map_lookup_elem(&frontends4, &f);
	/* Most connections of a host go elsewhere. */
	if (!id)
		return untouched(ctx, op, NO_FRONTEND);

	struct association a = {.frontend_port = f.port};
	enum verdict verdict;

	a.frontend[3] = address;
	switch (forward(ctx, false, op, transport, *id, &a, &verdict)) {
	case FORWARDED:
	case UNTRACKED:
		if (mapped)
			ctx->user_ip6[3] = a.endpoint[3];
		else
			ctx->user_ip4 = a.endpoint[3];
		ctx->user_port = a.endpoint_port;
		break;
	default:
		break;
	}
	return verdict;
}

INLINE enum verdict forward6(struct bpf_sock_addr *ctx, enum operation op)
{
	/* An IPv6 socket that asks for an IPv4 service. */
	if (is_mapped(ctx))
		return forward4(ctx, op, true);

	__u8 transport = transport_of(ctx);
	struct frontend6 f = {.port = port_of(ctx), .transport = transport};
	frontend_id *id;

	/* As with IPv4. */
	if (!transport)
		return pass(OTHER_PROTOCOL);
	f.address[0] = ctx->user_ip6[0];
	f.address[1] = ctx->user_ip6[1];
	f.address[2] = ctx->user_ip6[2];
	f.address[3] = ctx->user_ip6[3];
	id = bpf_map_lookup_elem(&frontends6, &f);
	/* As with IPv4. */
	if (!id)
		return untouched(ctx, op, NO_FRONTEND);

	struct association a = {.frontend_port = f.port};
	enum verdict verdict;

	a.frontend[0] = f.address[0];
	a.frontend[1] = f.address[1];
	a.frontend[2] = f.address[2];
	a.frontend[3] = f.address[3];
	switch (forward(ctx, true, op, transport, *id, &a, &verdict)) {
	case FORWARDED:
	case UNTRACKED:
		ctx->user_ip6[0] = a.endpoint[0];
		ctx->user_ip6[1] = a.endpoint[1];
		ctx->user_ip6[2] = a.endpoint[2];
		ctx->user_ip6[3] = a.endpoint[3];
		ctx->user_port = a.endpoint_port;
		break;
	default:
		break;
	}
	return verdict;
}
