/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* See types.h. */
#pragma once
#define __BITS_PER_LONG 64
#include <asm-generic/bitsperlong.h>
