// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Copies the heads of RoCE frames into per-CPU ring buffers.
 *
 * Includes no kernel header. What precedes this text when it is compiled
 * (probes/program.py):
 *   SNAP, WIDE_SNAP     bytes kept of a frame, and of an encapsulated one; multiples of 8
 *   RINGS_FD, LOSS_FD   file descriptors of the maps
 *   ROCE_PORT(port)     whether a UDP destination port carries RoCE
 *   MIRROR              1: look for RoCE inside GRE and ERSPAN as well
 *   FILTER(p)           whether to export a packet
 *   SAMPLE              export one packet in so many
 *   WHOLE_FRAME_BYTES   length of an XDP frame in several buffers
 * The tap's index is put into the loaded program in place of TAP_MARK.
 */

typedef unsigned char rs_u8;
typedef unsigned short rs_u16;
typedef unsigned int rs_u32;
typedef unsigned long long rs_u64;

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define NET16(x) __builtin_bswap16(x) /* constants and loads; BPF here is little-endian */
#define NET32(x) __builtin_bswap32(x)

#define TAP_MARK "0x52435441"
#define TC_NEXT (-1)
#define XDP_NEXT 2
#define NO_WAKEUP 1 /* BPF_RB_NO_WAKEUP: user space polls */

#define MAX_VLAN_TAGS 4
#define MAX_EXTENSION_HEADERS 8
#define MAX_IP_HEADERS 3 /* outer, SRv6 or IP-in-IP, inner */
#define MAX_OFFSET 2048	 /* headers further inside a frame are not looked for */

#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86DD
#define TYPE_VLAN 0x8100
#define TYPE_QINQ 0x88A8
#define TYPE_QINQ_OLD 0x9100
#define TYPE_ROCE_V1 0x8915
#define TYPE_ETHERNET 0x6558 /* transparent Ethernet bridging, RFC 1701 */
#define TYPE_ERSPAN_2 0x88BE /* types I and II */
#define TYPE_ERSPAN_3 0x22EB

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_IPV4 4
#define PROTOCOL_UDP 17
#define PROTOCOL_IB 0x1B
#define PROTOCOL_IPV6 41
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_GRE 47
#define PROTOCOL_DESTINATION 60
#define PROTOCOL_ETHERNET 143
#define NO_PROTOCOL 256

#define BTH_BYTES 12

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

rs_u64 rs_pseudo_fd(rs_u64, rs_u64) asm("llvm.bpf.pseudo");
#define MAP(fd) ((void *)rs_pseudo_fd(1 /* BPF_PSEUDO_MAP_FD */, fd))

static void *(*rs_lookup)(void *map, const void *key) = (void *)1;
static rs_u64 (*rs_ktime)(void) = (void *)5;
static rs_u32 (*rs_cpu)(void) = (void *)8;
static long (*rs_pull)(struct __sk_buff *skb, rs_u32 bytes) = (void *)39;
static void *(*rs_reserve)(void *ring, rs_u64 bytes, rs_u64 flags) = (void *)131;
static void (*rs_submit)(void *record, rs_u64 flags) = (void *)132;

/* A RoCE packet found in a frame. */
struct packet {
	rs_u64 ip_at;	  /* of the innermost IP header, or the GRH of RoCEv1 */
	rs_u64 bth_at;
	const rs_u8 *ip;
	const rs_u8 *bth;
	rs_u32 ipv4;	  /* 0: IPv6 or GRH */
	rs_u32 sport;
	rs_u32 dport;
	rs_u32 inner;	  /* how many headers it is encapsulated in */
};

enum verdict { OTHER, ROCE, SHORT };

/* Read anew each time: the verifier then forgets what it knew about earlier pointers. */
#define frame_data(ctx) ((const rs_u8 *)(long)*(volatile rs_u32 *)&(ctx)->data)
#define frame_end(ctx) ((const rs_u8 *)(long)*(volatile rs_u32 *)&(ctx)->data_end)

INLINE rs_u16 load16(const rs_u8 *at)
{
	return NET16(*(const rs_u16 *)at);
}

INLINE rs_u32 load32(const rs_u8 *at)
{
	return NET32(*(const rs_u32 *)at);
}

/*
 * How far `at` lies inside the frame. The verifier sees some number, whatever
 * way led there; so it checks what follows once and not for every combination
 * of tags and headers before.
 */
INLINE rs_u64 offset_of(const rs_u8 *at, const rs_u8 *data)
{
	rs_u64 offset = (rs_u64)at;

	asm volatile("%0 -= %1" : "+r"(offset) : "r"(data));
	return offset;
}

/* The place at an offset. What is checked of it and what is read use the same register. */
INLINE const rs_u8 *place(const rs_u8 *data, rs_u64 offset)
{
	data += offset;
	asm volatile("" : "+r"(data));
	return data;
}

INLINE int is_vlan(rs_u16 type)
{
	return type == TYPE_VLAN || type == TYPE_QINQ || type == TYPE_QINQ_OLD;
}

/* EtherType behind all VLAN tags; `*at` moves behind it. 0: too short, or too many tags. */
INLINE rs_u16 ethertype(const rs_u8 **at, const rs_u8 *data, const rs_u8 *end)
{
	const rs_u8 *p = *at;
	rs_u64 offset;
	rs_u16 type;

	if (p + 14 > end)
		return 0;
	type = load16(p + 12);
	*at = p + 14;
	if (LIKELY(!is_vlan(type)))
		return type;
	offset = offset_of(p + 14, data);
#pragma clang loop unroll(disable)
	for (int tags = 1; tags <= MAX_VLAN_TAGS; tags++) {
		if (offset > MAX_OFFSET)
			return 0;
		p = place(data, offset);
		if (p + 4 > end)
			return 0;
		type = load16(p + 2);
		*at = p + 4;
		if (!is_vlan(type))
			return type;
		offset = offset_of(p + 4, data);
	}
	return 0;
}

/* What a GRE header (RFC 2784, 2890) carries; `*at` moves to it. 0: nothing to look into. */
INLINE rs_u16 gre(const rs_u8 **at, const rs_u8 *end)
{
	const rs_u8 *p = *at;
	rs_u16 flags, type;

	if (p + 4 > end)
		return 0;
	flags = load16(p);
	type = load16(p + 2);
	if (flags & 0x4007) /* routing, or another version */
		return 0;
	p += 4;
	if (flags & 0x8000)
		p += 4; /* checksum */
	if (flags & 0x2000)
		p += 4; /* key */
	if (flags & 0x1000)
		p += 4; /* sequence number */
	if (type == TYPE_ERSPAN_2) {
		if (flags & 0x1000)
			p += 8; /* type II; type I has no header */
		type = TYPE_ETHERNET;
	} else if (type == TYPE_ERSPAN_3) {
		if (p + 12 > end)
			return 0;
		p += (p[11] & 1) ? 20 : 12; /* O: platform specific subheader */
		type = TYPE_ETHERNET;
	}
	*at = p;
	return type;
}

/* The protocol behind IPv6 extension headers; `*at` moves to it. NO_PROTOCOL: cannot be read. */
INLINE rs_u32 extension_headers(rs_u32 protocol, const rs_u8 **at, const rs_u8 *data,
				const rs_u8 *end)
{
	rs_u64 offset = offset_of(*at, data);
	const rs_u8 *p;
	rs_u32 bytes;

#pragma clang loop unroll(disable)
	for (int i = 0; i <= MAX_EXTENSION_HEADERS; i++) {
		if (offset > MAX_OFFSET)
			return NO_PROTOCOL;
		p = place(data, offset);
		*at = p;
		if (protocol != PROTOCOL_HOP_BY_HOP && protocol != PROTOCOL_ROUTING &&
		    protocol != PROTOCOL_DESTINATION && protocol != PROTOCOL_FRAGMENT)
			return protocol;
		if (p + 8 > end)
			return NO_PROTOCOL;
		bytes = (p[1] + 1) * 8;
		if (protocol == PROTOCOL_FRAGMENT) {
			if (load16(p + 2) & 0xFFF8)
				return NO_PROTOCOL; /* the middle of a datagram */
			bytes = 8;
		}
		protocol = p[0];
		offset = offset_of(p + bytes, data);
	}
	return NO_PROTOCOL;
}

/*
 * Looks for a RoCE packet and notes where it is. With SHORT, the linear part
 * of the frame ends before its headers do.
 */
INLINE enum verdict parse(const rs_u8 *data, const rs_u8 *end, struct packet *p)
{
	const rs_u8 *at = data;
	rs_u16 type = ethertype(&at, data, end);
	rs_u64 offset = offset_of(at, data);
	rs_u32 protocol;

	if (!type)
		return SHORT;
#pragma clang loop unroll(disable)
	for (int depth = 0; depth < MAX_IP_HEADERS; depth++) {
		if (offset > MAX_OFFSET)
			return OTHER;
		at = place(data, offset);
		p->ip_at = offset;
		p->inner = depth;
		if (LIKELY(type == TYPE_IPV4)) {
			rs_u32 header;

			if (at + 20 > end)
				return SHORT;
			header = (at[0] & 0x0F) * 4;
			if (header < 20 || (load16(at + 6) & 0x1FFF))
				return OTHER; /* no header, or the middle of a datagram */
			protocol = at[9];
			p->ipv4 = 1;
			at += header;
		} else if (type == TYPE_IPV6) {
			if (at + 40 > end)
				return SHORT;
			protocol = at[6];
			p->ipv4 = 0;
			at += 40;
			if (protocol != PROTOCOL_UDP)
				protocol = extension_headers(protocol, &at, data, end);
		} else if (type == TYPE_ROCE_V1) {
			if (at + 40 + BTH_BYTES > end)
				return SHORT;
			if (at[6] != PROTOCOL_IB)
				return OTHER;
			p->ipv4 = p->sport = p->dport = 0;
			p->bth_at = offset + 40;
			return ROCE;
		} else {
			return OTHER;
		}

		if (LIKELY(protocol == PROTOCOL_UDP)) {
			if (at + 8 > end)
				return SHORT;
			p->sport = load16(at);
			p->dport = load16(at + 2);
			if (!ROCE_PORT(p->dport))
				return OTHER;
			if (at + 8 + BTH_BYTES > end)
				return SHORT;
			p->bth_at = offset_of(at + 8, data);
			return ROCE;
		}
		type = 0;
		if (protocol == PROTOCOL_IPV4)
			type = TYPE_IPV4;
		else if (protocol == PROTOCOL_IPV6)
			type = TYPE_IPV6;
		else if (protocol == PROTOCOL_ETHERNET)
			type = TYPE_ETHERNET;
		else if (MIRROR && protocol == PROTOCOL_GRE)
			type = gre(&at, end);
		if (type == TYPE_ETHERNET) {
			type = ethertype(&at, data, end);
			if (!type)
				return SHORT;
		}
		if (!type)
			return OTHER;
		offset = offset_of(at, data);
	}
	return OTHER;
}

/* Makes the packet's headers readable; after `parse` has found them they always are. */
INLINE int locate(struct packet *p, const rs_u8 *data, const rs_u8 *end)
{
	if (p->ip_at > MAX_OFFSET || p->bth_at > 2 * MAX_OFFSET)
		return 0;
	p->ip = place(data, p->ip_at);
	p->bth = place(data, p->bth_at);
	/* The shortest way from IPv4 to the end of the BTH is 40 bytes. */
	return p->ip + 40 <= end && p->bth + BTH_BYTES <= end;
}

/* Where the packet ends in its frame, by its IP header. */
INLINE rs_u64 ip_end(const struct packet *p)
{
	if (p->ipv4)
		return p->ip_at + load16(p->ip + 2);
	return p->ip_at + 40 + load16(p->ip + 4);
}

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
	rs_u32 mark;

	asm volatile("%0 = " TAP_MARK : "=r"(mark));
	*tap = mark;
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
		rs_submit(r, NO_WAKEUP);                                                  \
		loss->exported++;                                                         \
		return 1;                                                                 \
	} while (0)

INLINE int export(const struct packet *p, const rs_u8 *data, const rs_u8 *end, rs_u32 wire_bytes,
		  rs_u32 tag, rs_u32 tap, struct loss *loss)
{
	rs_u32 cpu = rs_cpu();
	void *ring = rs_lookup(MAP(RINGS_FD), &cpu);

	if (!ring) {
		loss->ring_full++;
		return 0;
	}
	if (LIKELY(!p->inner || SNAP >= WIDE_SNAP))
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
