/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The few fields of the kernel's own structures that are read here, by name: the
 * loader finds where they are in the running kernel. */
#pragma once
#include "base.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock_common {
	__u16 skc_family;
};

struct inet_connection_sock {
	struct {
		__u32 lrcvtime; /* jiffies: last segment with data */
	} icsk_ack;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_tstamp; /* jiffies: last acknowledgement */
};

struct udp_sock;

struct bpf_iter_meta;

struct bpf_iter__tcp {
	__bpf_md_ptr(struct bpf_iter_meta *, meta);
	__bpf_md_ptr(struct sock_common *, sk_common);
};

struct bpf_iter__udp {
	__bpf_md_ptr(struct bpf_iter_meta *, meta);
	__bpf_md_ptr(struct udp_sock *, udp_sk);
};

#pragma clang attribute pop
