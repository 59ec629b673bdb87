// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * What every probe needs at its hook: return codes, maps, helpers of the kernel.
 * The tap's index is put into the loaded program in place of TAP_MARK.
 */

#define TAP_MARK "0x52435441"
#define TC_NEXT (-1)
#define XDP_NEXT 2

rs_u64 rs_pseudo_fd(rs_u64, rs_u64) asm("llvm.bpf.pseudo");
#define MAP(fd) ((void *)rs_pseudo_fd(1 /* BPF_PSEUDO_MAP_FD */, fd))

static void *(*rs_lookup)(void *map, const void *key) = (void *)1;
static rs_u64 (*rs_ktime)(void) = (void *)5;
static long (*rs_pull)(struct __sk_buff *skb, rs_u32 bytes) = (void *)39;

/* Index of the tap this program was loaded for. */
INLINE rs_u32 own_tap(void)
{
	rs_u32 mark;

	asm volatile("%0 = " TAP_MARK : "=r"(mark));
	return mark;
}
