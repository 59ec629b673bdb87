// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Counts RoCE packets per flow and UDP source port in the kernel.
 *
 * Definitions that precede this text at compilation (probes/counters/program.py), besides all the
 * headers but ring.bpf.h:
 *   TABLE_FD            array, mapped by user space: SETS of struct counter_set for each CPU
 *   ORDER_FD            array: ORDER_SETS of struct order_set
 *   TALLY_FD            array, per CPU: tap -> struct tally
 *   OPCODES_FD          array: opcode -> class bits, header length << 16, AETH offset << 24
 *   FILTER(p)           whether to count a packet
 *   WHOLE_FRAME_BYTES   length of an XDP frame in several buffers
 *   REQUEST, ...        class bits of opcodes; RESTART_DISTANCE
 *
 * The tables are hash tables of sets of four entries, in which the entry that was
 * idle longest is evicted. The kernel's LRU maps cost twice as much per packet,
 * and do not report what they evict.
 */

#define WAYS 4
#define TRIES 4

#define IS_IPV6 1 /* the addresses have 128 bits */
#define IN_USE 0x80  /* distinguishes a key of zeros from an empty entry */
#define CE 3
#define CNP_OPCODE 0x81

/* probes/counters/program.py reads this and the next two. */
struct counter_key {
	rs_u64 src[2]; /* in network order, IPv4 in the first four bytes */
	rs_u64 dst[2];
	rs_u32 dest_qp;
	rs_u16 sport;
	rs_u8 tap;
	rs_u8 flags; /* IS_IPV6, transport << 1, IN_USE */
};

/* Written by one CPU only. Fields that every data packet updates come first. */
struct counters {
	struct counter_key key;
	rs_u64 created_ns; /* CLOCK_MONOTONIC; 0: empty, or being created */
	rs_u64 packets;
	rs_u64 wire_bytes;
	rs_u64 payload_bytes;
	rs_u64 last_ns;
	rs_u64 requests;
	rs_u64 ecn_capable; /* including CE */
	rs_u64 messages;    /* requests that begin a message */
	rs_u64 idle_max_ns;
	rs_u64 idle[4]; /* gaps between packets of the flow over 10, 50, 100, 500 us */
	rs_u64 responses;
	rs_u64 acks; /* including NAKs and RNR NAKs */
	rs_u64 naks;
	rs_u64 rnr_naks;
	rs_u64 cnps;
	rs_u64 ecn_marked;
	rs_u64 reads;
	rs_u64 late;	 /* PSN below the one expected */
	rs_u64 gaps;	 /* number of times PSNs were skipped, */
	rs_u64 gap_psns; /* and total of skipped PSNs */
	rs_u64 jumps;	 /* PSNs skipped where their valid number is unknown */
	rs_u64 restarts; /* PSN far from the one expected */
	rs_u64 unordered; /* several CPUs handled the flow at the same time: order unknown */
	rs_u64 spare;
};

/*
 * One per CPU and tap. A RoCE frame adds to exactly one of counted and filtered.
 * A counted packet is in an entry, or in evicted_packets.
 */
struct tally {
	rs_u64 seen; /* frames that passed the hook */
	rs_u64 counted;
	rs_u64 counted_bytes;
	rs_u64 filtered;
	rs_u64 too_short;
	rs_u64 merged; /* merges of several frames (GRO, GSO), each counted once */
	rs_u64 inserted;
	rs_u64 evicted; /* evicted entries, */
	rs_u64 evicted_packets;
	rs_u64 evicted_bytes;
	rs_u64 ultra_ethernet; /* packets of Ultra Ethernet, which are not counted elsewhere */
	rs_u64 orders_lost; /* flows whose next PSN was evicted */
};

struct counter_set {
	struct counters way[WAYS];
};

/* One per flow and tap, shared by its UDP source ports and by all CPUs. */
struct flow_order {
	rs_u64 tag;  /* hash of the flow, made odd; 0: empty; or BUSY */
	rs_u64 next; /* two streams of 32 bits, requests in the low half; see below */
	rs_u64 last_ns;
	rs_u64 spare;
};

#define BUSY 2 /* is being replaced */

struct order_set {
	struct flow_order way[WAYS];
};

/* In each half of flow_order.next, beside the 24 bits of the PSN expected. */
#define PSN_MASK 0xFFFFFF
#define STARTED (1u << 24)
#define AFTER_READ (1u << 25) /* a READ reserves an unknown number of PSNs for its responses */

static rs_u32 (*rs_cpu)(void) = (void *)8;

INLINE int same_key(const struct counter_key *a, const struct counter_key *b)
{
	const rs_u64 *p = (const rs_u64 *)a, *q = (const rs_u64 *)b;

	return !((p[0] ^ q[0]) | (p[1] ^ q[1]) | (p[2] ^ q[2]) | (p[3] ^ q[3]) | (p[4] ^ q[4]));
}

/* In a set without the key: `first` if it is empty, else the entry that was idle longest. */
INLINE struct counters *stalest(struct counter_set *set, struct counters *first)
{
	struct counters *oldest = first;

#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if (set->way[i].last_ns < oldest->last_ns)
			oldest = &set->way[i];
	return oldest;
}

/* Assigns an entry to this key; created_ns shows readers that it changes. */
INLINE void take_over(struct counters *c, const struct counter_key *key, struct tally *tally,
		      rs_u64 now)
{
	if (c->created_ns) {
		tally->evicted++;
		tally->evicted_packets += c->packets;
		tally->evicted_bytes += c->wire_bytes;
	}
	__sync_lock_test_and_set(&c->created_ns, 0);
	__builtin_memset(&c->packets, 0, sizeof(*c) - __builtin_offsetof(struct counters, packets));
	c->key = *key;
	__sync_lock_test_and_set(&c->created_ns, now);
	tally->inserted++;
}

/* The entry of a key, created if there is none. */
INLINE struct counters *counters_of(const struct counter_key *key, rs_u64 hash,
				    struct tally *tally, rs_u64 now)
{
	rs_u32 at = rs_cpu() * SETS + (hash & (SETS - 1));
	struct counter_set *set = rs_lookup(MAP(TABLE_FD), &at);
	struct counters *c;

	if (!set)
		return 0; /* never */
	/* Most are found here; the first set for all of them would leave most caches unused. */
	c = &set->way[hash >> 40 & (WAYS - 1)];
	if (LIKELY(same_key(&c->key, key)))
		return c;
#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if (same_key(&set->way[i].key, key))
			return &set->way[i];
	c = stalest(set, c);
	take_over(c, key, tally, now);
	return c;
}

/* The order of a flow; 0 while another CPU replaces an entry. */
INLINE struct flow_order *order_of(rs_u64 hash, struct tally *tally, rs_u64 now)
{
	rs_u32 at = hash & (ORDER_SETS - 1);
	struct order_set *set = rs_lookup(MAP(ORDER_FD), &at);
	struct flow_order *order;
	rs_u64 tag = hash | 1, before;

	if (!set)
		return 0; /* never */
	order = &set->way[hash >> 40 & (WAYS - 1)];
	if (LIKELY(order->tag == tag))
		return order;
#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if (set->way[i].tag == tag)
			return &set->way[i];
#pragma unroll
	for (int i = 0; i < WAYS; i++)
		if (set->way[i].last_ns < order->last_ns)
			order = &set->way[i];
	before = *(volatile rs_u64 *)&order->tag;
	if (before == BUSY || __sync_val_compare_and_swap(&order->tag, before, BUSY) != before)
		return 0;
	order->next = 0;
	order->last_ns = now;
	__sync_lock_test_and_set(&order->tag, tag);
	tally->orders_lost += before != 0;
	return order;
}

/* Judges the PSN of a packet in its stream. Requests and responses have separate PSNs. */
INLINE void judge(struct flow_order *order, rs_u32 psn, rs_u32 class, struct counters *c)
{
	rs_u32 shift = class & RESPONSE_DATA ? 32 : 0;
	rs_u64 behind = ((psn + 1) & PSN_MASK) | STARTED | (class & READ_REQUEST ? AFTER_READ : 0);

#pragma unroll
	for (int i = 0; i < TRIES; i++) {
		rs_u64 old = *(volatile rs_u64 *)&order->next;
		rs_u32 stream = old >> shift;
		int ahead = 0;
		rs_u64 next;

		if (LIKELY(stream & STARTED))
			ahead = (int)((psn - stream) << 8) >> 8; /* modulo 2^24, with its sign */
		if (ahead < 0 && ahead > -RESTART_DISTANCE) {
			c->late++;
			return;
		}
		next = (old & ~(0xFFFFFFFFull << shift)) | behind << shift;
		if (__sync_val_compare_and_swap(&order->next, old, next) != old)
			continue;
		if (LIKELY(!ahead))
			return;
		if (ahead < 0 || ahead >= RESTART_DISTANCE) {
			c->restarts++;
		} else if (stream & AFTER_READ || (class & RESPONSE_DATA && class & BEGINS)) {
			c->jumps++;
		} else {
			c->gaps++;
			c->gap_psns += ahead;
		}
		return;
	}
	c->unordered++;
}

INLINE void note_idle(struct flow_order *order, rs_u64 now, struct counters *c)
{
	rs_u64 gap = now - *(volatile rs_u64 *)&order->last_ns;

	order->last_ns = now;
	if ((long long)gap < 0)
		return; /* another CPU has already processed a later packet */
	if (gap > c->idle_max_ns)
		c->idle_max_ns = gap;
	if (gap <= 10000)
		return;
	c->idle[0]++;
	if (gap <= 50000)
		return;
	c->idle[1]++;
	if (gap > 100000) {
		c->idle[2]++;
		c->idle[3] += gap > 500000;
	}
}

INLINE void count_answer(const struct packet *p, rs_u32 aeth, const rs_u8 *end, struct counters *c)
{
	const rs_u8 *at = p->bth + aeth;

	c->acks++;
	if (!aeth || at + 4 > end)
		return;
	c->naks += (at[0] & 0x60) == 0x60;
	c->rnr_naks += (at[0] & 0x60) == 0x20;
}

INLINE rs_u64 mix(rs_u64 h, rs_u64 value)
{
	h = (h ^ value) * 0x9E3779B97F4A7C15ull;
	return h ^ (h >> 32);
}

/* Fills the key; returns the hash of the flow, without the UDP source port. */
INLINE rs_u64 make_key(struct counter_key *key, const struct packet *p, rs_u32 tap)
{
	const rs_u32 *address = (const rs_u32 *)(p->ip + (p->ipv4 ? 12 : 8));
	rs_u64 h;

	if (LIKELY(p->ipv4)) {
		key->src[0] = address[0];
		key->dst[0] = address[1];
		key->src[1] = key->dst[1] = 0;
		key->flags = IN_USE;
		h = mix(0, key->src[0] << 32 | key->dst[0]);
	} else {
		key->src[0] = address[0] | (rs_u64)address[1] << 32;
		key->src[1] = address[2] | (rs_u64)address[3] << 32;
		key->dst[0] = address[4] | (rs_u64)address[5] << 32;
		key->dst[1] = address[6] | (rs_u64)address[7] << 32;
		key->flags = IN_USE | IS_IPV6;
		h = mix(mix(mix(mix(0, key->src[0]), key->src[1]), key->dst[0]), key->dst[1]);
	}
	key->flags |= p->bth[0] >> 5 << 1;
	key->dest_qp = load32(p->bth + 4) & 0xFFFFFF;
	key->sport = p->sport;
	key->tap = tap;
	return mix(h, (rs_u64)key->dest_qp << 9 | tap << 1 | !p->ipv4);
}

/* Whether the packet was counted. `p` is located. */
INLINE int count(const struct packet *p, const rs_u8 *end, rs_u64 wire_bytes, rs_u32 tap,
		 struct tally *tally)
{
	rs_u32 opcode = p->bth[0], class, *entry;
	rs_u32 ecn = (p->ipv4 ? p->ip[1] : load16(p->ip) >> 4) & 3;
	rs_u64 now, hash, overhead, packet_bytes = ip_end(p) - p->bth_at;
	struct flow_order *order;
	struct counter_key key;
	struct counters *c;

	if (!(FILTER(p))) {
		tally->filtered++;
		return 0;
	}
	entry = rs_lookup(MAP(OPCODES_FD), &opcode);
	if (!entry)
		return 0; /* never: there are 256 */
	class = *entry;
	hash = make_key(&key, p, tap);
	now = rs_ktime();
	c = counters_of(&key, mix(hash, (rs_u64)key.sport << 8 | key.flags), tally, now);
	if (!c)
		return 0; /* never */
	tally->counted++;
	tally->counted_bytes += wire_bytes;
	c->packets++;
	c->wire_bytes += wire_bytes;
	c->last_ns = now;
	overhead = (class >> 16 & 0xFF) + (p->bth[1] >> 4 & 3) + 4;
	if (packet_bytes > overhead)
		c->payload_bytes += packet_bytes - overhead;
	c->ecn_capable += ecn != 0;
	c->ecn_marked += ecn == CE;
	order = order_of(hash, tally, now);
	if (order)
		note_idle(order, now, c);
	if (opcode == CNP_OPCODE) {
		c->cnps++;
		return 1;
	}
	if (class & REQUEST) {
		c->requests++;
		c->messages += (class & BEGINS) != 0;
		c->reads += (class & READ_REQUEST) != 0;
	} else if (class & RESPONSE_DATA) {
		c->responses++;
	} else if (class & ACKNOWLEDGE) {
		count_answer(p, class >> 24, end, c);
	}
	if (class & SEQUENCED && !(class & ACKNOWLEDGE)) {
		if (order)
			judge(order, load32(p->bth + 8) & PSN_MASK, class, c);
		else
			c->unordered++;
	}
	return 1;
}

int count_xdp(struct xdp_md *ctx)
{
	const rs_u8 *data, *end;
	enum verdict verdict;
	struct tally *tally;
	rs_u32 tap = own_tap();
	struct packet p;
	rs_u64 bytes;

	tally = rs_lookup(MAP(TALLY_FD), &tap);
	if (!tally)
		return XDP_NEXT;
	tally->seen++;
	verdict = find_xdp(ctx, &data, &end, &p);
	if (verdict == OTHER) {
		if (is_ultra_ethernet(&p))
			tally->ultra_ethernet++;
		return XDP_NEXT;
	}
	if (verdict == SHORT) {
		tally->too_short++;
		return XDP_NEXT;
	}
	bytes = offset_of(end, data);
	/* The call is expensive: only if the IP length exceeds the first buffer. */
	if (ip_end(&p) > bytes)
		bytes = WHOLE_FRAME_BYTES(ctx, bytes);
	count(&p, end, bytes, tap, tally);
	return XDP_NEXT;
}

int count_tc(struct __sk_buff *skb)
{
	rs_u32 tap = own_tap(), bytes = skb->len;
	const rs_u8 *data, *end;
	enum verdict verdict;
	struct tally *tally;
	struct packet p;

	tally = rs_lookup(MAP(TALLY_FD), &tap);
	if (!tally)
		return TC_NEXT;
	tally->seen++;
	verdict = find_tc(skb, 0, &data, &end, &p);
	if (LIKELY(verdict == OTHER)) {
		if (is_ultra_ethernet(&p))
			tally->ultra_ethernet++;
		return TC_NEXT;
	}
	if (verdict == SHORT) {
		tally->too_short++;
		return TC_NEXT;
	}
	if (count(&p, end, bytes + (skb->vlan_present ? 4 : 0), tap, tally) && skb->gso_segs > 1)
		tally->merged++;
	return TC_NEXT;
}
