/*
 * A rule of the fault lab at one interface and direction of a router.
 *
 * Definitions that precede this text (tests/lab/rules.py):
 *   STATE_FD    array of three u64: whether the rule is on, how many packets it hit, and until when
 *               the packets that passed `exceeds` take at its rate
 *   CONDITION   C expression over `struct packet p`: true for packets to hit
 *   ACTION      what to do with them
 */

#define STATE ((void *)pseudo_fd(1 /* BPF_PSEUDO_MAP_FD */, STATE_FD))
#define CHANCE(millionths) (bpf_get_prandom_u32() % 1000000 < (millionths))
#define PASS 0 /* TC_ACT_OK */
#define DROPPED 2 /* TC_ACT_SHOT */
#define COPIED 0x1ab

typedef unsigned long long word;
word pseudo_fd(word, word) asm("llvm.bpf.pseudo");

struct packet {
	u32 ipv6, tos, bytes, sport, opcode, dest_qp, psn, source, target;
};

static inline __attribute__((always_inline)) int set_dscp(struct __sk_buff *skb, struct packet *p, u8 dscp)
{
	u8 tos = dscp << 2 | (p->tos & 3), old = p->tos;
	if (p->ipv6) {
		u8 head[2] = {0x60 | tos >> 4, tos << 4};
		return bpf_skb_store_bytes(skb, 14, head, 2, 0);
	}
	bpf_l3_csum_replace(skb, 24, bpf_htons(old), bpf_htons(tos), 2);
	return bpf_skb_store_bytes(skb, 15, &tos, 1, 0);
}

static inline __attribute__((always_inline)) int copy(struct __sk_buff *skb)
{
	skb->mark = COPIED; /* the copy passes this rule once more */
	return bpf_clone_redirect(skb, skb->ifindex, 0);
}

static inline __attribute__((always_inline)) int damage(struct __sk_buff *skb, u32 at)
{
	u8 bits;
	if (bpf_skb_load_bytes(skb, at, &bits, 1))
		return -1;
	bits ^= 1 << (bpf_get_prandom_u32() & 7);
	return bpf_skb_store_bytes(skb, at, &bits, 1, 0);
}

/* Whether a packet exceeds a rate: those that do not would wait for at most `most` ns. */
static inline __attribute__((always_inline)) int exceeds(word *until, u32 ns, u32 most)
{
	word now = bpf_ktime_get_ns(), end = (*until > now ? *until : now) + ns;
	if (end - now > most)
		return 1;
	*until = end;
	return 0;
}

int rule(struct __sk_buff *skb)
{
	u32 first = 0, second = 1, third = 2, at;
	word *on = bpf_map_lookup_elem(STATE, &first), *hits = bpf_map_lookup_elem(STATE, &second);
	word *until = bpf_map_lookup_elem(STATE, &third);
	u8 head[40], udp[20];
	struct packet p = {};

	if (!on || !hits || !until || !*on || skb->mark == COPIED)
		return PASS;
	p.ipv6 = skb->protocol == bpf_htons(0x86dd);
	if (bpf_skb_load_bytes(skb, 14, head, 20))
		return PASS;
	if (p.ipv6) {
		if (bpf_skb_load_bytes(skb, 34, head + 20, 20))
			return PASS;
		p.tos = (head[0] << 4 | head[1] >> 4) & 0xff;
		p.source = head[13];
		p.target = head[29];
		at = 54;
	} else {
		p.tos = head[1];
		p.source = head[14];
		p.target = head[18];
		at = 34;
	}
	if (bpf_skb_load_bytes(skb, at, udp, 20) || udp[2] << 8 != 0x1200 || udp[3] != 0xb7)
		return PASS;
	p.bytes = skb->len;
	p.sport = udp[0] << 8 | udp[1];
	p.opcode = udp[8];
	p.dest_qp = udp[13] << 16 | udp[14] << 8 | udp[15];
	p.psn = udp[17] << 16 | udp[18] << 8 | udp[19];
	if (!(CONDITION))
		return PASS;
	__sync_fetch_and_add(hits, 1);
	ACTION;
	return PASS;
}
