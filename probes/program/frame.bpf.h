// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Frames and how to read them, for the probes. Includes no kernel header.
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
#define MAX_OFFSET 2048	 /* no search for headers beyond this offset */

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

/* Read again each time: the verifier then drops its bounds of earlier pointers. */
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
 * The offset of `at` in the frame. The verifier sees an unknown number for every
 * path to this point; so it checks the following code once, not for every
 * combination of tags and headers before.
 */
INLINE rs_u64 offset_of(const rs_u8 *at, const rs_u8 *data)
{
	rs_u64 offset = (rs_u64)at;

	asm volatile("%0 -= %1" : "+r"(offset) : "r"(data));
	return offset;
}

/*
 * The address of an offset below 2 * MAX_OFFSET. The check and the load use the same
 * register. The verifier of older kernels does not know the bounds of an offset that
 * was on the stack, so they are set here.
 */
INLINE const rs_u8 *place(const rs_u8 *data, rs_u64 offset)
{
	asm volatile("" : "+r"(offset));
	data += offset & (2 * MAX_OFFSET - 1);
	asm volatile("" : "+r"(data));
	return data;
}

/* The same for a constant offset. */
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

/* EtherType after all VLAN tags; `*at` moves past it. 0: too short, or too many tags. */
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
