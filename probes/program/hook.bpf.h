// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Common parts of all probes at a hook: return codes, maps, helpers of the kernel.
 * The loader replaces TAP_MARK by the tap's index.
 */

#define TAP_MARK "0x52435441"
#define TC_NEXT (-1)
#define XDP_NEXT 2
#define PULLED 256 /* bytes made linear in an skb: WIDE_SNAP */

rs_u64 rs_pseudo_fd(rs_u64, rs_u64) asm("llvm.bpf.pseudo");
#define MAP(fd) ((void *)rs_pseudo_fd(1 /* BPF_PSEUDO_MAP_FD */, fd))

static void *(*rs_lookup)(void *map, const void *key) = (void *)1;
static rs_u64 (*rs_ktime)(void) = (void *)5;
static long (*rs_pull)(struct __sk_buff *skb, rs_u32 bytes) = (void *)39;

/* Index of the tap of this program. */
INLINE rs_u32 own_tap(void)
{
	rs_u32 mark;

	asm volatile("%0 = " TAP_MARK : "=r"(mark));
	return mark;
}

/*
 * Searches a frame for a RoCE packet, and makes its headers and the frame from `data` to
 * `end` readable. Returns OTHER, ROCE or SHORT.
 */
INLINE enum verdict find_xdp(struct xdp_md *ctx, const rs_u8 **data, const rs_u8 **end,
			     struct packet *p)
{
	enum verdict verdict;

	*p = (struct packet){};
	*data = frame_data(ctx);
	*end = frame_end(ctx);
	verdict = glance(*data, *end, p);
	if (verdict != UNCLEAR)
		return verdict;
	verdict = parse(*data, *end, p);
	*data = frame_data(ctx);
	*end = frame_end(ctx);
	return verdict == ROCE && !locate(p, *data, *end) ? SHORT : verdict;
}

/* Whether the linear part of a frame has `least` bytes, and 4 bytes behind the BTH, or all of it. */
INLINE int has_heads(const struct packet *p, const rs_u8 *data, const rs_u8 *end, rs_u32 least,
		     rs_u32 frame_bytes)
{
	rs_u64 linear = offset_of(end, data);

	return linear >= frame_bytes || (linear >= least && linear >= p->bth_at + BTH_BYTES + 4);
}

/* The same, but first makes up to PULLED bytes linear if `least` bytes are not. */
INLINE enum verdict find_tc(struct __sk_buff *skb, const rs_u32 least, const rs_u8 **data,
			    const rs_u8 **end, struct packet *p)
{
	rs_u32 frame_bytes = skb->len;
	enum verdict verdict;

	*p = (struct packet){};
	*data = frame_data(skb);
	*end = frame_end(skb);
	verdict = glance(*data, *end, p);
	if (verdict == OTHER)
		return OTHER;
	if (verdict == ROCE && has_heads(p, *data, *end, least, frame_bytes))
		return ROCE;
#pragma clang loop unroll(disable)
	for (int round = 0;; round++) {
		*p = (struct packet){};
		*data = frame_data(skb);
		*end = frame_end(skb);
		verdict = parse(*data, *end, p);
		if (verdict == OTHER)
			return OTHER;
		if (verdict == ROCE && has_heads(p, *data, *end, least, frame_bytes))
			break;
		if (round || rs_pull(skb, frame_bytes < PULLED ? frame_bytes : PULLED))
			break;
	}
	*data = frame_data(skb);
	*end = frame_end(skb);
	return verdict == ROCE && !locate(p, *data, *end) ? SHORT : verdict;
}
