/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the kernel tells a hook of a socket address. */
#pragma once
#include "base.h"

enum transport {
	TRANSPORT_TCP = 6,
	TRANSPORT_UDP = 17,
	/* What socket(2) is asked for; on the wire, and for us, it is TCP. */
	TRANSPORT_MPTCP = 262,
};

/* transport_of returns 0 for what is not balanced. */
INLINE __u8 transport_of(struct bpf_sock_addr *ctx)
{
	switch (ctx->protocol) {
	case TRANSPORT_TCP:
	case TRANSPORT_MPTCP:
		return TRANSPORT_TCP;
	case TRANSPORT_UDP:
		return TRANSPORT_UDP;
	}
	return 0;
}

/* port_of reads all four bytes, as old kernels demand; the port, in network order,
 * is the first two in memory. */
INLINE __be16 port_of(struct bpf_sock_addr *ctx)
{
	volatile __u32 port = ctx->user_port;

	return (__be16)port;
}

/* is_mapped tells whether an IPv6 address is an IPv4 address in disguise. */
INLINE bool is_mapped(struct bpf_sock_addr *ctx)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	const __u32 marker = 0xffff0000;
#else
	const __u32 marker = 0x0000ffff;
#endif
	return ctx->user_ip6[0] == 0 && ctx->user_ip6[1] == 0 && ctx->user_ip6[2] == marker;
}
