// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Finds RoCE packets in frames, for the probes. Includes no kernel header.
 *
 * What precedes this text when it is compiled (probes/program.py):
 *   ROCE_PORT(port)     whether a UDP destination port carries RoCE
 *   MIRROR              1: look for RoCE inside GRE, ERSPAN, VXLAN, Geneve and MPLS as well
 */

typedef unsigned char rs_u8;
typedef unsigned short rs_u16;
typedef unsigned int rs_u32;
typedef unsigned long long rs_u64;

#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define NET16(x) __builtin_bswap16(x) /* constants and loads; BPF here is little-endian */
#define NET32(x) __builtin_bswap32(x)

#define MAX_VLAN_TAGS 4
#define MAX_EXTENSION_HEADERS 8
#define MAX_IP_HEADERS 4 /* a mirror's, a tunnel's, SRv6 or IP-in-IP, inner */
#define MAX_LABELS 8
#define MAX_OFFSET 2048	 /* headers further inside a frame are not looked for */

#define TYPE_IPV4 0x0800
#define TYPE_IPV6 0x86DD
#define TYPE_VLAN 0x8100
#define TYPE_QINQ 0x88A8
#define TYPE_QINQ_OLD 0x9100
#define TYPE_ROCE_V1 0x8915
#define TYPE_MPLS 0x8847
#define TYPE_MPLS_UPSTREAM 0x8848
#define TYPE_ETHERNET 0x6558 /* transparent Ethernet bridging, RFC 1701 */
#define TYPE_ERSPAN_2 0x88BE /* types I and II */
#define TYPE_ERSPAN_3 0x22EB

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_IPV4 4
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_IB 0x1B
#define PROTOCOL_IPV6 41
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_GRE 47
#define PROTOCOL_DESTINATION 60
#define PROTOCOL_MPLS 137
#define PROTOCOL_ETHERNET 143
#define NO_PROTOCOL 256

#define PORT_VXLAN 4789
#define PORT_ULTRA_ETHERNET 4793
#define PORT_GENEVE 6081

#define BTH_BYTES 12

/* A RoCE packet found in a frame. */
struct packet {
	rs_u64 ip_at;	  /* of the innermost IP header, or the GRH of RoCEv1 */
	rs_u64 bth_at;
	const rs_u8 *ip;
	const rs_u8 *bth;
	rs_u32 ipv4;	  /* 0: IPv6 or GRH */
	rs_u32 sport;
	rs_u32 dport;
};

/* SHORT: the frame ends before its headers do, as far as it can be read. */
enum verdict { OTHER, ROCE, SHORT, UNCLEAR };

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

/*
 * The place at an offset below 2 * MAX_OFFSET. What is checked of it and what is read use
 * the same register. Of an offset that came back from the stack the verifier of older
 * kernels knows no bounds, so it gets them here.
 */
INLINE const rs_u8 *place(const rs_u8 *data, rs_u64 offset)
{
	asm volatile("" : "+r"(offset));
	data += offset & (2 * MAX_OFFSET - 1);
	asm volatile("" : "+r"(data));
	return data;
}

/* The same at an offset that is known in advance. */
INLINE const rs_u8 *behind(const rs_u8 *data, const rs_u32 bytes)
{
	data += bytes;
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

/*
 * What a stack of MPLS labels (RFC 3032) carries; `*at` moves to it. Only its first
 * nibble tells (RFC 4928): an IP header, or the control word of an Ethernet frame (RFC
 * 4385). 0: nothing to look into.
 */
INLINE rs_u16 mpls(const rs_u8 **at, const rs_u8 *data, const rs_u8 *end)
{
	rs_u64 offset = offset_of(*at, data);
	const rs_u8 *p;

#pragma clang loop unroll(disable)
	for (int labels = 0; labels < MAX_LABELS; labels++) {
		if (offset > MAX_OFFSET)
			return 0;
		p = place(data, offset);
		if (p + 8 > end)
			return 0;
		*at = p + 4;
		if (p[2] & 1) {
			if (p[4] >> 4 == 4)
				return TYPE_IPV4;
			if (p[4] >> 4 == 6)
				return TYPE_IPV6;
			if (p[4] >> 4)
				return TYPE_ETHERNET;
			*at = p + 8;
			return TYPE_ETHERNET;
		}
		offset = offset_of(p + 4, data);
	}
	return 0;
}

INLINE int is_tunnel(rs_u32 port)
{
	return MIRROR && (port == PORT_VXLAN || port == PORT_GENEVE);
}

/* What a tunnel over UDP carries, `*at` being its UDP header; 0: nothing to look into. */
INLINE rs_u16 udp_tunnel(rs_u32 port, const rs_u8 **at, const rs_u8 *end)
{
	const rs_u8 *p = *at + 8;

	if (!is_tunnel(port))
		return 0;
	if (p + 8 > end)
		return 0;
	if (port == PORT_VXLAN) { /* RFC 7348 */
		*at = p + 8;
		return p[0] & 0x08 ? TYPE_ETHERNET : 0;
	}
	if (p[0] & 0xC0 || p[1] & 0x80) /* RFC 8926: another version, a control message */
		return 0;
	*at = p + 8 + (p[0] & 0x3F) * 4;
	return load16(p + 2);
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
 * Looks for a RoCE packet in the frames that nearly all are, at places known in
 * advance: with one VLAN tag at most, IPv4 without options or IPv6 without
 * extension headers, and no tunnel. UNCLEAR: `parse` has to look.
 */
INLINE enum verdict glance(const rs_u8 *data, const rs_u8 *end, struct packet *p)
{
	const rs_u8 *ip = behind(data, 14), *bth;
	rs_u64 ip_at = 14;
	rs_u16 type;

	if (data + 18 + 20 + 8 + BTH_BYTES > end)
		return UNCLEAR;
	type = load16(data + 12);
	if (type == TYPE_VLAN) {
		type = load16(data + 16);
		ip = behind(data, 18);
		ip_at = 18;
	}
	if (LIKELY(type == TYPE_IPV4)) {
		if (ip[9] != PROTOCOL_UDP)
			return ip[9] == PROTOCOL_TCP ? OTHER : UNCLEAR;
		if (ip[0] != 0x45 || load16(ip + 6) & 0x1FFF)
			return UNCLEAR;
		p->ipv4 = 1;
		p->bth_at = ip_at + 20 + 8;
		bth = behind(ip, 20 + 8);
	} else if (type == TYPE_IPV6) {
		if (ip + 40 + 8 + BTH_BYTES > end)
			return UNCLEAR;
		if (ip[6] != PROTOCOL_UDP)
			return ip[6] == PROTOCOL_TCP ? OTHER : UNCLEAR;
		p->ipv4 = 0;
		p->bth_at = ip_at + 40 + 8;
		bth = behind(ip, 40 + 8);
	} else {
		return UNCLEAR;
	}
	p->ip_at = ip_at;
	p->ip = ip;
	p->bth = bth;
	p->dport = load16(bth - 6);
	if (LIKELY(ROCE_PORT(p->dport))) {
		p->sport = load16(bth - 8);
		return ROCE;
	}
	return is_tunnel(p->dport) ? UNCLEAR : OTHER;
}

/* Looks for a RoCE packet in every frame and notes where it is. `p` is to be zeros before. */
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
		if (MIRROR && (type == TYPE_MPLS || type == TYPE_MPLS_UPSTREAM)) {
			type = mpls(&at, data, end);
			if (type == TYPE_ETHERNET)
				type = ethertype(&at, data, end);
			offset = offset_of(at, data);
			if (offset > MAX_OFFSET)
				return OTHER;
			at = place(data, offset);
		}
		p->ip_at = offset;
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
			if (LIKELY(ROCE_PORT(p->dport))) {
				if (at + 8 + BTH_BYTES > end)
					return SHORT;
				p->bth_at = offset_of(at + 8, data);
				return ROCE;
			}
			if (!MIRROR)
				return OTHER;
			type = udp_tunnel(p->dport, &at, end);
		} else if (protocol == PROTOCOL_IPV4)
			type = TYPE_IPV4;
		else if (protocol == PROTOCOL_IPV6)
			type = TYPE_IPV6;
		else if (protocol == PROTOCOL_ETHERNET)
			type = TYPE_ETHERNET;
		else if (MIRROR && protocol == PROTOCOL_MPLS)
			type = TYPE_MPLS;
		else if (MIRROR && protocol == PROTOCOL_GRE)
			type = gre(&at, end);
		else
			type = 0;
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
	p->ip = place(data, p->ip_at);
	p->bth = place(data, p->bth_at);
	/* The shortest way from IPv4 to the end of the BTH is 40 bytes. */
	return p->ip + 40 <= end && p->bth + BTH_BYTES <= end;
}

/* Whether what is not a RoCE packet is one of Ultra Ethernet. */
INLINE int is_ultra_ethernet(const struct packet *p)
{
	return p->dport == PORT_ULTRA_ETHERNET;
}

/* Whether more than VLAN tags (or a few labels) lies in front of the IP header. */
INLINE int is_inner(const struct packet *p)
{
	return p->ip_at > 14 + 4 * MAX_VLAN_TAGS;
}

/* Where the packet ends in its frame, by its IP header. */
INLINE rs_u64 ip_end(const struct packet *p)
{
	if (p->ipv4)
		return p->ip_at + load16(p->ip + 2);
	return p->ip_at + 40 + load16(p->ip + 4);
}
