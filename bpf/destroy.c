//go:build ignore

// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* Ends the connections to endpoints that are gone: one pass over all sockets of a
 * network namespace. Only those that our programs led to such an endpoint are
 * touched, by the word of the socket itself; a connection that an application
 * made to the same address on its own lives on. */
#include "headers/association.h"
#include "headers/kernel.h"

char licence[] SEC("license") = "Dual MIT/GPL";

struct doomed_key {
	service_id service;
	__u32 zero;
	endpoint_id id;
};

struct doom {
	__u32 silent_jiffies; /* spare who heard anything within; 0: spare nobody */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct doomed_key);
	__type(value, struct doom);
} doomed SEC(".maps");

/* What the passes did and when, in the clock of the sockets and in that of user
 * space, which so learns how long a jiffy is. */
struct passes {
	__u64 ended;
	__u64 spared;
	__u64 jiffies;
	__u64 at_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct passes);
} passes SEC(".maps");

extern int bpf_sock_destroy(struct sock_common *sk) __ksym;

INLINE struct passes *the_passes(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&passes, &key);
}

INLINE struct doom *doom_of(const struct association *a)
{
	struct doomed_key key = {.service = a->service, .id = a->id};

	return bpf_map_lookup_elem(&doomed, &key);
}

INLINE void note_time(void)
{
	struct passes *p = the_passes();

	if (p) {
		p->jiffies = bpf_jiffies64();
		p->at_ns = bpf_ktime_get_ns();
	}
}

/* end lets the application see ECONNABORTED. */
INLINE void end(struct sock_common *sk)
{
	struct passes *p = the_passes();

	/* Always true; the compiler describes a structure in full only if one of
	 * its fields is read, and the loader wants that for bpf_sock_destroy. */
	if (sk->skc_family && p && bpf_sock_destroy(sk) == 0)
		p->ended++;
}

/* heard tells whether the peer said anything lately. */
INLINE bool heard(struct sock_common *sk, __u32 silent_jiffies)
{
	struct tcp_sock *tcp = bpf_skc_to_tcp_sock(sk);
	__u32 now = (__u32)bpf_jiffies64();

	if (!tcp)
		return false;
	return now - tcp->rcv_tstamp < silent_jiffies || now - tcp->inet_conn.icsk_ack.lrcvtime < silent_jiffies;
}

SEC("iter/tcp")
int destroy_tcp(struct bpf_iter__tcp *ctx)
{
	struct sock_common *sk = ctx->sk_common;

	if (!sk) { /* the end of the pass */
		note_time();
		return 0;
	}

	struct association *a = bpf_sk_storage_get(&sockets, sk, 0, 0);

	if (!a)
		return 0;

	struct doom *d = doom_of(a);

	if (!d)
		return 0;
	/* The endpoint was declared dead, and yet it spoke: let the connection find
	 * out by itself. */
	if (d->silent_jiffies && heard(sk, d->silent_jiffies)) {
		struct passes *p = the_passes();

		if (p)
			p->spared++;
		return 0;
	}
	end(sk);
	return 0;
}

SEC("iter/udp")
int destroy_udp(struct bpf_iter__udp *ctx)
{
	struct udp_sock *sk = ctx->udp_sk;

	if (!sk) {
		note_time();
		return 0;
	}

	struct association *a = bpf_sk_storage_get(&sockets, sk, 0, 0);

	/* A datagram socket hears nothing of its own: silence says nothing. */
	if (a && doom_of(a))
		end((struct sock_common *)sk);
	return 0;
}
