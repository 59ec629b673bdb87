// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Copies the heads of RoCE frames into the ring of the CPU.
 *
 * Definitions that precede this text at compilation (probes/program/program.py), besides all the headers:
 *   FILTER(p)           whether to export a packet
 *   SAMPLE              export one packet in N
 */

INLINE rs_u64 mix(rs_u64 h, rs_u64 value)
{
	h = (h ^ value) * 0x9E3779B97F4A7C15ull;
	return h ^ (h >> 32);
}

/* Depends on flow and PSN only, so that every tap selects the same packets. */
INLINE int in_sample(const struct packet *p)
{
	rs_u64 h;

	if (SAMPLE <= 1)
		return 1;
	if (p->ipv4) {
		h = mix(0, (rs_u64)load32(p->ip + 12) << 32 | load32(p->ip + 16));
	} else {
		h = mix(0, (rs_u64)load32(p->ip + 8) << 32 | load32(p->ip + 12));
		h = mix(h, (rs_u64)load32(p->ip + 16) << 32 | load32(p->ip + 20));
		h = mix(h, (rs_u64)load32(p->ip + 24) << 32 | load32(p->ip + 28));
		h = mix(h, (rs_u64)load32(p->ip + 32) << 32 | load32(p->ip + 36));
	}
	h = mix(h, (rs_u64)(load32(p->bth + 4) & 0xFFFFFF) << 32 | (load32(p->bth + 8) & 0xFFFFFF));
	return ((h & 0xFFFFFFFF) * SAMPLE) >> 32 == 0;
}

/* Whether to export a RoCE packet. */
INLINE int wanted(const struct packet *p, struct loss *loss)
{
	if (!(FILTER(p))) {
		loss->filtered++;
		return 0;
	}
	if (!in_sample(p)) {
		loss->sampled_out++;
		return 0;
	}
	return 1;
}

/* Whether needed bytes are beyond those that are kept of most frames: */
INLINE int is_long(const struct packet *p, rs_u32 wire_bytes)
{
	return is_inner(p) || p->bth_at > SNAP - 16 /* extension headers */ ||
	       p->bth[0] >> 5 == 6 /* MRC, which has the longest acknowledgements */ ||
	       (p->bth[0] == 0x0A && wire_bytes <= WIDE_SNAP); /* RC WRITE ONLY: NCCL's grants */
}

INLINE int export(const struct packet *p, const rs_u8 *data, const rs_u8 *end, rs_u32 wire_bytes,
		  rs_u32 tag, rs_u32 tap, struct ring *ring)
{
	struct loss *loss = &ring->loss[tap];
	int written;

	if (LIKELY(SNAP >= WIDE_SNAP || !is_long(p, wire_bytes)))
		written = write_record(ring, tap, data, end, wire_bytes, tag, SNAP);
	else
		written = write_record(ring, tap, data, end, wire_bytes, tag, WIDE_SNAP);
	if (LIKELY(written))
		loss->exported++;
	else
		loss->ring_full++;
	return written;
}

int probe_xdp(struct xdp_md *ctx)
{
	struct ring *ring = own_ring();
	rs_u32 tap = own_tap();
	const rs_u8 *data, *end;
	enum verdict verdict;
	struct loss *loss;
	struct packet p;

	if (!ring)
		return XDP_NEXT;
	loss = &ring->loss[tap];
	loss->seen++;
	verdict = find_xdp(ctx, &data, &end, &p);
	if (verdict == OTHER) {
		if (is_ultra_ethernet(&p))
			loss->ultra_ethernet++;
		return XDP_NEXT;
	}
	if (verdict == SHORT) {
		loss->too_short++;
		return XDP_NEXT;
	}
	if (wanted(&p, loss)) {
		rs_u64 bytes = offset_of(end, data);

		/* The call is expensive: only if the IP length exceeds the first buffer. */
		if (ip_end(&p) > bytes)
			bytes = WHOLE_FRAME_BYTES(ctx, bytes);
		export(&p, data, end, bytes, 0, tap, ring);
	}
	return XDP_NEXT;
}

int probe_tc(struct __sk_buff *skb)
{
	struct ring *ring = own_ring();
	rs_u32 tap = own_tap(), tag = 0, bytes = skb->len;
	const rs_u8 *data, *end;
	enum verdict verdict;
	struct loss *loss;
	struct packet p;

	if (!ring)
		return TC_NEXT;
	loss = &ring->loss[tap];
	loss->seen++;
	verdict = find_tc(skb, SNAP, &data, &end, &p);
	if (LIKELY(verdict == OTHER)) {
		if (is_ultra_ethernet(&p))
			loss->ultra_ethernet++;
		return TC_NEXT;
	}
	if (verdict == SHORT) {
		loss->too_short++;
		return TC_NEXT;
	}
	if (!wanted(&p, loss))
		return TC_NEXT;
	if (skb->vlan_present) {
		tag = skb->vlan_proto | (rs_u32)NET16(skb->vlan_tci) << 16;
		bytes += 4;
	}
	if (export(&p, data, end, bytes, tag, tap, ring) && skb->gso_segs > 1)
		loss->merged++;
	return TC_NEXT;
}
