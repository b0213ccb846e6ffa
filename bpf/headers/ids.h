/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How user space names things to programs. */
#pragma once
#include "base.h"

typedef __u32 service_id;    /* never used again */
typedef __u32 service_place; /* an index; used again after a grace period */
typedef __u64 endpoint_id;   /* the host's; unique within its service */
