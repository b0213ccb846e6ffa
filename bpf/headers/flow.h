/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Flow events: what was decided on a connection or datagram, for people who
 * watch. Nobody watching costs one load. */
#pragma once
#include "association.h"
#include "base.h"
#include "verdict.h"

struct flow {
	__u64 at_ns; /* of the monotonic clock */
	__u64 cgroup;
	__u64 netns;
	__u64 endpoint; /* 0: none was chosen */
	__be32 frontend[4];
	__be32 destination[4];
	__be16 frontend_port;
	__be16 destination_port;
	service_id service;
	__u32 pid;
	__u32 uid;
	__u8 six;
	__u8 transport;
	__u8 reason;
	__u8 zero[5];
	char process[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 262144);
} flows SEC(".maps");

struct settings {
	__u32 sample_one_in; /* 0: nobody watches */
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct settings);
} settings SEC(".maps");

INLINE void report(bool six, __u8 transport, enum reason why, __u64 netns, const struct association *a)
{
	__u32 key = 0;
	struct settings *s = bpf_map_lookup_elem(&settings, &key);

	if (!s)
		return;

	__u32 one_in = atomic_load(&s->sample_one_in);

	if (one_in == 0 || (one_in > 1 && bpf_get_prandom_u32() % one_in != 0))
		return;

	struct flow *f = bpf_ringbuf_reserve(&flows, sizeof(*f), 0);

	if (!f)
		return; /* the reader is behind: what it misses is not worth waiting for */
	f->at_ns = bpf_ktime_get_ns();
	f->cgroup = bpf_get_current_cgroup_id();
	f->netns = netns;
	f->endpoint = a->id;
#pragma unroll
	for (int i = 0; i < 4; i++) {
		f->frontend[i] = a->frontend[i];
		f->destination[i] = a->endpoint[i];
	}
	f->frontend_port = a->frontend_port;
	f->destination_port = a->endpoint_port;
	f->service = a->service;
	f->pid = bpf_get_current_pid_tgid() >> 32;
	f->uid = (__u32)bpf_get_current_uid_gid();
	f->six = six;
	f->transport = transport;
	f->reason = why;
#pragma unroll
	for (int i = 0; i < 5; i++)
		f->zero[i] = 0;
	bpf_get_current_comm(f->process, sizeof(f->process));
	bpf_ringbuf_submit(f, 0);
}
