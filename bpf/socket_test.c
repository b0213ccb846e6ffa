//go:build ignore

// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The programs of socket.c with a kernel that says what a test wants: one program
 * for each hook, which the kernel runs for a test as it runs no hook of a cgroup.
 * What the test says and what became of it is in the scene. */
#include "headers/base.h"

struct scene {
	/* What the application asked for, and after the run what the kernel would do
	 * with it. Addresses and the port are in network order. */
	__be32 ip4;
	__be32 ip6[4];
	__be16 port;
	__u16 zero;
	__u32 protocol; /* IPPROTO_… of socket(2) */

	/* What the kernel tells. */
	__u32 random;
	__u64 cookie; /* of the socket */
	__u64 netns;  /* cookie of the namespace */
	__u64 cgroup;
	__u64 now_ns;
	__u32 no_storage; /* no memory for the storage of sockets */

	/* What the program said. */
	__s32 verdict;
	__s32 retval; /* 0: none was chosen */
	__u32 more;
} scene;

#define bpf_get_prandom_u32() (scene.random)
#define bpf_get_socket_cookie(ctx) ((void)(ctx), scene.cookie)
#define bpf_get_netns_cookie(ctx) ((void)(ctx), scene.netns)
#define bpf_get_current_cgroup_id() (scene.cgroup)
#define bpf_get_current_pid_tgid() (7ULL << 32 | 8)
#define bpf_get_current_uid_gid() (9ULL << 32 | 10)
#define bpf_get_current_comm(text, bytes) __builtin_memcpy(text, "test\0\0\0\0\0\0\0\0\0\0\0", bytes)
#define bpf_ktime_get_ns() (scene.now_ns)
#define bpf_set_retval(error) (scene.retval = (error))
#define bpf_sk_storage_get(map, sk, value, flags) fake_storage((map), (flags))
#define bpf_sk_storage_delete(map, sk) fake_delete((map))

INLINE void *fake_storage(const void *map, __u64 flags);
INLINE long fake_delete(const void *map);

#include "headers/forward.h"
#include "headers/reverse.h"
#include "headers/stamp.h"

/* The storage of the one socket that there is. */
struct storage {
	struct association connected;
	struct datagrams datagrams;
	__u32 has_connected;
	__u32 has_datagrams;
} storage;

/* What the tests name has to occur, or nothing is said of it to them. */
struct names {
	enum reason reason;
	enum verdict verdict;
	enum scope scope;
	enum publication_flag flag;
	enum transport transport;
	struct flow flow;
	enum service_count service_count;
} names;

INLINE void *fake_storage(const void *map, __u64 flags)
{
	bool datagram = map == (const void *)&datagrams;
	__u32 *has = datagram ? &storage.has_datagrams : &storage.has_connected;

	if (!*has) {
		if (!(flags & BPF_SK_STORAGE_GET_F_CREATE) || scene.no_storage)
			return 0;
		if (datagram)
			__builtin_memset(&storage.datagrams, 0, sizeof(storage.datagrams));
		else
			__builtin_memset(&storage.connected, 0, sizeof(storage.connected));
		*has = 1;
	}
	return datagram ? (void *)&storage.datagrams : (void *)&storage.connected;
}

INLINE long fake_delete(const void *map)
{
	if (map == (const void *)&datagrams)
		storage.has_datagrams = 0;
	else
		storage.has_connected = 0;
	return 0;
}

char test_licence[] SEC("license") = "Dual MIT/GPL";

/* The functions of socket.c are no programs here but parts of some. */
#define HOOKS(each)        \
	each(connect4)     \
	each(connect6)     \
	each(sendmsg4)     \
	each(sendmsg6)     \
	each(recvmsg4)     \
	each(recvmsg6)     \
	each(getpeername4) \
	each(getpeername6)
#define DECLARE(hook) INLINE int hook(struct bpf_sock_addr *ctx);
HOOKS(DECLARE)
#undef SEC
#define SEC(name)
#include "socket.c"

#define XDP __attribute__((section("xdp"), used))

#define RUN(hook)                                                                                                       \
	XDP int run_##hook(struct xdp_md *unused)                                                                       \
	{                                                                                                               \
		struct bpf_sock_addr ctx = {.user_ip4 = scene.ip4, .user_port = scene.port, .protocol = scene.protocol}; \
                                                                                                                        \
		ctx.user_ip6[0] = scene.ip6[0];                                                                         \
		ctx.user_ip6[1] = scene.ip6[1];                                                                         \
		ctx.user_ip6[2] = scene.ip6[2];                                                                         \
		ctx.user_ip6[3] = scene.ip6[3];                                                                         \
		scene.verdict = hook(&ctx);                                                                             \
		scene.ip4 = ctx.user_ip4;                                                                               \
		scene.ip6[0] = ctx.user_ip6[0];                                                                         \
		scene.ip6[1] = ctx.user_ip6[1];                                                                         \
		scene.ip6[2] = ctx.user_ip6[2];                                                                         \
		scene.ip6[3] = ctx.user_ip6[3];                                                                         \
		scene.port = (__be16)ctx.user_port;                                                                     \
		return XDP_PASS;                                                                                        \
	}

HOOKS(RUN)
