// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Copies the heads of RoCE frames into per-CPU ring buffers.
 *
 * What precedes this text when it is compiled (probes/program.py), besides packet.bpf.h and hook.bpf.h:
 *   SNAP, WIDE_SNAP     bytes kept of a frame, and of an encapsulated one; multiples of 8
 *   RINGS_FD, LOSS_FD   file descriptors of the maps
 *   FILTER(p)           whether to export a packet
 *   SAMPLE              export one packet in so many
 *   WAKE_EVERY          wake user space after so many records, a power of two
 *   WHOLE_FRAME_BYTES   length of an XDP frame in several buffers
 */

#define NO_WAKEUP 1    /* BPF_RB_NO_WAKEUP: user space polls */
#define FORCE_WAKEUP 2 /* BPF_RB_FORCE_WAKEUP: before the ring is full */

/* One exported frame; `data` follows. probes/ring.py reads this layout. */
struct record_header {
	rs_u64 time_ns;	   /* CLOCK_MONOTONIC */
	rs_u32 wire_bytes; /* length of the frame, tags that were stripped included */
	rs_u16 captured_bytes;
	rs_u16 tap;
};

struct record {
	struct record_header header;
	rs_u8 data[SNAP];
};

struct wide_record {
	struct record_header header;
	rs_u8 data[WIDE_SNAP];
};

/*
 * One per CPU and tap. probes/loss.py reads this layout. A RoCE frame adds to
 * exactly one of exported, ring_full, filtered and sampled_out.
 */
struct loss {
	rs_u64 seen;	    /* frames the hook was called for */
	rs_u64 exported;    /* records written */
	rs_u64 ring_full;   /* RoCE frames for which there was no room */
	rs_u64 filtered;    /* RoCE frames that the filter does not want */
	rs_u64 sampled_out; /* RoCE frames that are not in the sample */
	rs_u64 too_short;   /* the frame ends before its headers do */
	rs_u64 merged;	    /* exported records that stand for several frames (GRO, GSO) */
};

static rs_u32 (*rs_cpu)(void) = (void *)8;
static void *(*rs_reserve)(void *ring, rs_u64 bytes, rs_u64 flags) = (void *)131;
static void (*rs_submit)(void *record, rs_u64 flags) = (void *)132;

INLINE rs_u64 mix(rs_u64 h, rs_u64 value)
{
	h = (h ^ value) * 0x9E3779B97F4A7C15ull;
	return h ^ (h >> 32);
}

/* Decided by flow and PSN alone, so that every tap picks the same packets. */
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

/*
 * Copies up to `most` (a multiple of 8) bytes and says how many. Of a shorter
 * frame the last eight bytes are copied apart, over some that were copied
 * before: that spares the verifier all combinations of 4, 2 and 1.
 */
INLINE rs_u32 copy(rs_u8 *out, const rs_u8 *from, const rs_u8 *end, const rs_u32 most)
{
	rs_u64 bytes, last;

	if (LIKELY(from + most <= end)) {
#pragma unroll
		for (rs_u32 i = 0; i < most; i += 8)
			*(rs_u64 *)(out + i) = *(const rs_u64 *)(from + i);
		return most;
	}
#pragma unroll
	for (rs_u32 i = 0; i < most; i += 8) {
		if (from + i + 8 > end)
			break;
		*(rs_u64 *)(out + i) = *(const rs_u64 *)(from + i);
	}
	bytes = offset_of(end, from);
	last = bytes - 8;
	asm volatile("" : "+r"(last)); /* as it is checked it is to be used */
	if (last > most - 8)
		return 0; /* never: a RoCE frame is longer than that */
	from = place(from, last);
	if (from + 8 > end)
		return 0; /* never */
	*(rs_u64 *)(out + last) = *(const rs_u64 *)from;
	return bytes;
}

/* Copies the head of a frame; a tag from metadata goes back to its place behind the addresses. */
INLINE rs_u32 copy_frame(rs_u8 *out, const rs_u8 *data, const rs_u8 *end, rs_u32 tag,
			 const rs_u32 most)
{
	if (LIKELY(!tag))
		return copy(out, data, end, most);
	if (data + 14 > end)
		return 0;
	*(rs_u64 *)out = *(const rs_u64 *)data;
	*(rs_u32 *)(out + 8) = *(const rs_u32 *)(data + 8);
	*(rs_u32 *)(out + 12) = tag;
	return 16 + copy(out + 16, data + 12, end, most - 16);
}

INLINE struct loss *loss_of(rs_u32 *tap)
{
	*tap = own_tap();
	return rs_lookup(MAP(LOSS_FD), tap);
}

/* Whether a RoCE packet is wanted. */
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

/*
 * The time is taken after the reservation, so that all records before a moment
 * are in their rings when it has passed: user space can order several CPUs.
 */
#define EXPORT(type)                                                                      \
	do {                                                                              \
		struct type *r = rs_reserve(ring, sizeof(*r), 0);                         \
		if (!r) {                                                                 \
			loss->ring_full++;                                                \
			return 0;                                                         \
		}                                                                         \
		r->header.time_ns = rs_ktime();                                           \
		r->header.wire_bytes = wire_bytes;                                        \
		r->header.tap = tap;                                                      \
		r->header.captured_bytes =                                                \
			copy_frame(r->data, data, end, tag, sizeof(r->data));             \
		rs_submit(r, ++loss->exported % WAKE_EVERY ? NO_WAKEUP : FORCE_WAKEUP);   \
		return 1;                                                                 \
	} while (0)

/* Whether headers of interest lie behind what is kept of most frames: */
INLINE int is_long(const struct packet *p)
{
	return is_inner(p) || p->bth_at > SNAP - 16 /* extension headers */ ||
	       p->bth[0] >> 5 == 6; /* MRC, which has the longest acknowledgements */
}

INLINE int export(const struct packet *p, const rs_u8 *data, const rs_u8 *end, rs_u32 wire_bytes,
		  rs_u32 tag, rs_u32 tap, struct loss *loss)
{
	rs_u32 cpu = rs_cpu();
	void *ring = rs_lookup(MAP(RINGS_FD), &cpu);

	if (!ring) {
		loss->ring_full++;
		return 0;
	}
	if (LIKELY(SNAP >= WIDE_SNAP || !is_long(p)))
		EXPORT(record);
	EXPORT(wide_record);
}

int probe_xdp(struct xdp_md *ctx)
{
	const rs_u8 *data = frame_data(ctx);
	const rs_u8 *end = frame_end(ctx);
	struct packet p = {};
	struct loss *loss;
	enum verdict verdict;
	rs_u32 tap;

	loss = loss_of(&tap);
	if (!loss)
		return XDP_NEXT;
	loss->seen++;
	verdict = parse(data, end, &p);
	if (verdict == OTHER)
		return XDP_NEXT;
	data = frame_data(ctx);
	end = frame_end(ctx);
	if (verdict == SHORT || !locate(&p, data, end)) {
		loss->too_short++;
		return XDP_NEXT;
	}
	if (wanted(&p, loss)) {
		rs_u64 bytes = offset_of(end, data);

		/* The call is dear: only where IP says that more lies in further buffers. */
		if (ip_end(&p) > bytes)
			bytes = WHOLE_FRAME_BYTES(ctx, bytes);
		export(&p, data, end, bytes, 0, tap, loss);
	}
	return XDP_NEXT;
}

int probe_tc(struct __sk_buff *skb)
{
	const rs_u8 *data, *end;
	struct packet p;
	struct loss *loss;
	enum verdict verdict;
	rs_u32 tap, tag = 0, bytes = skb->len;

	loss = loss_of(&tap);
	if (!loss)
		return TC_NEXT;
	loss->seen++;
	/* A second round when the headers are not all in the linear part. */
#pragma clang loop unroll(disable)
	for (int round = 0;; round++) {
		p = (struct packet){};
		data = frame_data(skb);
		end = frame_end(skb);
		verdict = parse(data, end, &p);
		if (LIKELY(verdict == OTHER))
			return TC_NEXT;
		if (verdict == ROCE && (data + SNAP <= end || data + bytes <= end))
			break;
		if (round || rs_pull(skb, bytes < WIDE_SNAP ? bytes : WIDE_SNAP))
			break;
	}
	data = frame_data(skb);
	end = frame_end(skb);
	if (verdict == SHORT || !locate(&p, data, end)) {
		loss->too_short++;
		return TC_NEXT;
	}
	if (!wanted(&p, loss))
		return TC_NEXT;
	if (skb->vlan_present) {
		tag = skb->vlan_proto | (rs_u32)NET16(skb->vlan_tci) << 16;
		bytes += 4;
	}
	if (export(&p, data, end, bytes, tag, tap, loss) && skb->gso_segs > 1)
		loss->merged++;
	return TC_NEXT;
}
