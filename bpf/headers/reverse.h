/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The way back: an application that asked for a frontend is shown the frontend.
 * These hooks may not refuse anything: the kernel ignores or mistakes it. */
#pragma once
#include "address.h"
#include "association.h"
#include "base.h"
#include "verdict.h"

enum question {
	SOURCE, /* of a datagram that was received */
	REMOTE, /* of a connected socket */
};

INLINE struct association *recall(struct bpf_sock_addr *ctx, enum question q, const __be32 address[4])
{
	return q == SOURCE ? recall_datagram(ctx, address, port_of(ctx)) : recall_peer(ctx, address, port_of(ctx));
}

INLINE enum verdict reverse4(struct bpf_sock_addr *ctx, enum question q, bool mapped)
{
	__be32 address[4] = {0, 0, 0, mapped ? ctx->user_ip6[3] : ctx->user_ip4};
	struct association *a = recall(ctx, q, address);

	if (a) {
		if (mapped)
			ctx->user_ip6[3] = a->frontend[3];
		else
			ctx->user_ip4 = a->frontend[3];
		ctx->user_port = a->frontend_port;
		count(q == SOURCE ? REVERSED : PEER);
	}
	return PASS;
}

INLINE enum verdict reverse6(struct bpf_sock_addr *ctx, enum question q)
{
	/* An IPv6 socket that talks to an IPv4 endpoint. */
	if (is_mapped(ctx))
		return reverse4(ctx, q, true);

	__be32 address[4] = {ctx->user_ip6[0], ctx->user_ip6[1], ctx->user_ip6[2], ctx->user_ip6[3]};
	struct association *a = recall(ctx, q, address);

	if (a) {
		ctx->user_ip6[0] = a->frontend[0];
		ctx->user_ip6[1] = a->frontend[1];
		ctx->user_ip6[2] = a->frontend[2];
		ctx->user_ip6[3] = a->frontend[3];
		ctx->user_port = a->frontend_port;
		count(q == SOURCE ? REVERSED : PEER);
	}
	return PASS;
}
