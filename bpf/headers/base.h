/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What every program here is written in: the kernel's own types, helpers, and the
 * words of this directory that belong to no single concept. */
#pragma once

#include <linux/types.h>

#include <linux/bpf.h>

#include <asm-generic/errno.h>
#include <bpf/bpf_helpers.h>

#define INLINE static __always_inline

typedef _Bool bool;
#define true 1
#define false 0

/* atomic_load reads a word that user space replaces by one atomic store, exactly
 * once. */
#define atomic_load(p) (*(volatile typeof(*(p)) *)(p))
