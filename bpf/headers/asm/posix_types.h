/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* See types.h. */
#pragma once
#include <asm-generic/posix_types.h>
