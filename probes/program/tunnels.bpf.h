// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Headers around a RoCE packet: tunnels, mirrors, labels, IPv6 extension headers.
 *
 * Definitions that precede this text at compilation (probes/program/program.py), besides frame.bpf.h:
 *   MIRROR              1: also search GRE, ERSPAN, VXLAN, Geneve and MPLS for RoCE
 */

/* Payload type of a GRE header (RFC 2784, 2890); `*at` moves to the payload. 0: ignored. */
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
 * Payload type of an MPLS label stack (RFC 3032); `*at` moves to the payload. Its first
 * nibble is the only evidence (RFC 4928): an IP header, or the control word of an Ethernet
 * frame (RFC 4385). 0: ignored.
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

/* Payload type of a tunnel over UDP; `*at` is its UDP header. 0: ignored. */
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

/* The protocol after IPv6 extension headers; `*at` moves to it. NO_PROTOCOL: unreadable. */
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
