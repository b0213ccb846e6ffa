/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * <linux/types.h> includes this file from the directory of an architecture. BPF
 * is an architecture of its own, so the objects must not depend on the machine
 * that they are compiled on.
 */
#pragma once
#include <asm-generic/int-ll64.h>
