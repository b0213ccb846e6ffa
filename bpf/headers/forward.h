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
#include "service.h"
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

/* deny is for the processes of a cgroup that may not talk to the service. */
INLINE enum verdict deny(bool six, __u8 transport, __u64 netns, service_place at, const struct association *a)
{
	count_of_service(service_at(at), SERVICE_DENIED);
	report(six, transport, DENIED, netns, a);
	return refuse(DENIED, EPERM);
}

/* without_endpoint is what there is to do where nobody lives. */
INLINE enum reason without_endpoint(struct bpf_sock_addr *ctx, bool six, enum operation op, __u8 transport, __u64 netns,
				    publication p, struct association *a, enum verdict *verdict)
{
	struct service *s = service_at(service_of(p));

	/* User space sizes the array, so a place outside of it is its mistake.
	 * Nothing good can come of going on. */
	if (!s) {
		*verdict = refuse(BROKEN, ECONNREFUSED);
		return BROKEN;
	}
	a->service = s->id;
	if (!allowed(a->service)) {
		*verdict = deny(six, transport, netns, service_of(p), a);
		return DENIED;
	}
	/* A port of this node whose own listener answers while nobody else does. */
	if (!has_flag(p, REFUSES)) {
		count_of_service(s, SERVICE_EMPTY_PASSED);
		report(six, transport, EMPTY_PASSED, netns, a);
		*verdict = untouched(ctx, op, EMPTY_PASSED);
		return EMPTY_PASSED;
	}
	/* A service without a living instance, as a host without a listener
	 * answers. */
	count_of_service(s, SERVICE_EMPTY_REFUSED);
	report(six, transport, EMPTY_REFUSED, netns, a);
	*verdict = refuse(EMPTY_REFUSED, ECONNREFUSED);
	return EMPTY_REFUSED;
}

/* forward fills in a->endpoint, which the caller writes into the context if the
 * answer is FORWARDED or UNTRACKED; any other reason comes with its verdict. */
INLINE enum reason forward(struct bpf_sock_addr *ctx, bool six, enum operation op, __u8 transport, __u64 netns,
			   publication p, struct association *a, enum verdict *verdict)
{
	struct association *room = 0;
	struct endpoint e = {};
	struct place at = {};
	__u32 slot;

	/* The frontend was found, and is being taken away. */
	if (!has_flag(p, PUBLISHED)) {
		*verdict = untouched(ctx, op, WITHDRAWN);
		return WITHDRAWN;
	}
	if (count_of(p) == 0)
		return without_endpoint(ctx, six, op, transport, netns, p, a, verdict);

	slot = any(ctx, op, count_of(p));
	/* User space sizes the arrays, so a set outside of them is its mistake.
	 * Nothing good can come of going on. */
	if (!approach(six, set_of(p), slot, &at)) {
		*verdict = refuse(BROKEN, ECONNREFUSED);
		return BROKEN;
	}
	/* While the slot is on its way; a policy is asked before anything is done. */
	if (op == CONNECT && !policy_in_force)
		room = room_for_connect(ctx);
	read_endpoint(six, &at, &e);
	a->service = e.service;
	if (!allowed(e.service)) {
		*verdict = deny(six, transport, netns, e.at, a);
		return DENIED;
	}
	if (op == CONNECT && policy_in_force)
		room = room_for_connect(ctx);
	if (has_flag(p, STICKY)) {
		struct client c = {.netns = netns, .service = e.service};
		struct service *s = service_at(e.at);
		__u64 now = bpf_ktime_get_ns();

		if (s && recall_bond(six, &c, p, s->affinity_seconds, now, &slot)) {
			/* As with the one that was chosen by chance. */
			if (!load_endpoint(six, set_of(p), slot, &e)) {
				*verdict = refuse(BROKEN, ECONNREFUSED);
				return BROKEN;
			}
			count(KEPT);
		}
		bind(&c, p, slot, e.id, now);
	}

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
			count_of_service(service_at(e.at), SERVICE_NO_MEMORY);
			report(six, transport, NO_MEMORY, netns, a);
			*verdict = refuse(NO_MEMORY, ENOMEM);
			return NO_MEMORY;
		}
	} else if (room) {
		*room = *a;
	} else {
		/* The connection works all the same; it shows the endpoint as its
		 * peer, and outlives it. */
		count_of_service(service_at(e.at), SERVICE_UNTRACKED);
		why = UNTRACKED;
	}
	hit(&e);
	report(six, transport, why, netns, a);
	/* A living instance was found. */
	*verdict = pass(why);
	return why;
}

INLINE enum verdict forward4(struct bpf_sock_addr *ctx, enum operation op, bool mapped)
{
	__u8 transport = transport_of(ctx);
	__be32 address = mapped ? ctx->user_ip6[3] : ctx->user_ip4;
	__be16 port = port_of(ctx);
	__u64 netns;
	publication p;

	/* Raw sockets and the like have no ports that a service could have. */
	if (!transport)
		return pass(OTHER_PROTOCOL);
	netns = bpf_get_netns_cookie(ctx);
	/* Most connections of a host go elsewhere. */
	if (!published4(address, port, transport, scope_of(netns), &p))
		return untouched(ctx, op, NO_FRONTEND);

	struct association a = {.frontend_port = port};
	enum verdict verdict;

	a.frontend[3] = address;
	switch (forward(ctx, false, op, transport, netns, p, &a, &verdict)) {
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
	__be32 address[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]};
	__be16 port = port_of(ctx);
	__u64 netns;
	publication p;

	/* As with IPv4. */
	if (!transport)
		return pass(OTHER_PROTOCOL);
	netns = bpf_get_netns_cookie(ctx);
	/* As with IPv4. */
	if (!published6(address, port, transport, scope_of(netns), &p))
		return untouched(ctx, op, NO_FRONTEND);

	struct association a = {.frontend_port = port};
	enum verdict verdict;

	a.frontend[0] = address[0];
	a.frontend[1] = address[1];
	a.frontend[2] = address[2];
	a.frontend[3] = address[3];
	switch (forward(ctx, true, op, transport, netns, p, &a, &verdict)) {
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
