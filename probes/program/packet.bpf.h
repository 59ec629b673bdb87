// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Finds RoCE packets in frames, for the probes.
 *
 * Definitions that precede this text at compilation (probes/program/program.py), besides frame.bpf.h
 * and tunnels.bpf.h:
 *   ROCE_PORT(port)     whether a UDP destination port carries RoCE
 */

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

/* SHORT: the readable part of the frame ends within its headers. */
enum verdict { OTHER, ROCE, SHORT, UNCLEAR };

/*
 * Searches the most common frames for a RoCE packet, at constant offsets: at most
 * one VLAN tag, IPv4 without options or IPv6 without extension headers, and no
 * tunnel. UNCLEAR: call `parse`.
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

/* Searches any frame for a RoCE packet and stores its offsets. `p` must be zeros before. */
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

/* Makes the packet's headers readable; they are always readable after `parse`. */
INLINE int locate(struct packet *p, const rs_u8 *data, const rs_u8 *end)
{
	p->ip = place(data, p->ip_at);
	p->bth = place(data, p->bth_at);
	/* The shortest way from IPv4 to the end of the BTH is 40 bytes. */
	return p->ip + 40 <= end && p->bth + BTH_BYTES <= end;
}

/* Whether a packet that is not RoCE is Ultra Ethernet. */
INLINE int is_ultra_ethernet(const struct packet *p)
{
	return p->dport == PORT_ULTRA_ETHERNET;
}

/* Whether more than VLAN tags (or a few labels) precedes the IP header. */
INLINE int is_inner(const struct packet *p)
{
	return p->ip_at > 14 + 4 * MAX_VLAN_TAGS;
}

/* End of the packet in its frame, by its IP header. */
INLINE rs_u64 ip_end(const struct packet *p)
{
	if (p->ipv4)
		return p->ip_at + load16(p->ip + 2);
	return p->ip_at + 40 + load16(p->ip + 4);
}
