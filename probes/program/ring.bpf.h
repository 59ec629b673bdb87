// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Rings of records, one for each CPU, in memory that user space has mapped.
 *
 * Definitions that precede this text at compilation (probes/program/program.py), besides the other headers:
 *   SNAP, WIDE_SNAP     bytes kept of a frame, and of an encapsulated one; multiples of 8
 *   TAPS                number of taps, or one more
 *   RINGS_FD            array: CPU -> struct ring
 *   CHUNKS_FD           array: the chunks of all rings, ring after ring
 *   BELL_FD             a ring buffer of the kernel that stays empty
 *   RING_BYTES          size of a ring, a power of two
 *   CHUNK_BYTES         size of a chunk, a power of two; a ring consists of whole chunks
 *   STRONGLY_ORDERED    1: every atomic instruction of this processor is a memory barrier
 *
 * The kernel's ring buffers need a lock and two calls for each record, these need an
 * atomic addition before it and another one after it.
 */

#define WAKE_UP 2 /* BPF_RB_FORCE_WAKEUP */
#define MARK 1	  /* in the head: a record is being written */
#define MARKS 7

/* One exported frame; its bytes follow, up to a multiple of 8. probes/rings.py reads this. */
struct record_header {
	rs_u64 time_ns;	   /* CLOCK_MONOTONIC */
	rs_u32 wire_bytes; /* length of the frame, including stripped tags */
	rs_u16 captured_bytes;
	rs_u16 tap;
};

#define LARGEST_RECORD (sizeof(struct record_header) + WIDE_SNAP)

/*
 * One per CPU and tap. probes/rings.py reads this layout. A RoCE frame adds to
 * exactly one of exported, ring_full, filtered and sampled_out.
 */
struct loss {
	rs_u64 seen;	    /* frames that passed the hook */
	rs_u64 exported;    /* records written */
	rs_u64 ring_full;   /* RoCE frames lost because the ring was full */
	rs_u64 filtered;    /* RoCE frames excluded by the filter */
	rs_u64 sampled_out; /* RoCE frames that are not in the sample */
	rs_u64 too_short;   /* the frame ends within its headers */
	rs_u64 merged;	    /* exported records of merged frames (GRO, GSO) */
	rs_u64 ultra_ethernet; /* packets of Ultra Ethernet, which are not exported */
};

/*
 * One per CPU. probes/rings.py reads this layout. Positions are bytes since the
 * start, multiples of 8. Fields of different writers are on separate cache lines.
 */
struct ring {
	rs_u64 head; /* after the last record; plus the number of MARKs */
	rs_u64 of_the_probe[15];
	rs_u64 tail;	    /* written by user space: bytes before it may be overwritten */
	rs_u64 first_chunk; /* index in CHUNKS_FD */
	rs_u64 of_the_reader[14];
	struct loss loss[TAPS];
};

static rs_u32 (*rs_cpu)(void) = (void *)8;
static void *(*rs_reserve)(void *ring, rs_u64 bytes, rs_u64 flags) = (void *)131;
static void (*rs_discard)(void *record, rs_u64 flags) = (void *)133;

/* The ring of this CPU. */
INLINE struct ring *own_ring(void)
{
	rs_u32 cpu = rs_cpu();

	return rs_lookup(MAP(RINGS_FD), &cpu);
}

/*
 * Copies up to `most` (a multiple of 8) bytes and returns their number. The last
 * eight bytes of a shorter frame are copied separately and overlap the bytes
 * before: the verifier then does not check all combinations of 4, 2 and 1.
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
	asm volatile("" : "+r"(last)); /* keeps the checked register in use */
	if (last > most - 8)
		return 0; /* never: a RoCE frame is longer */
	from = place(from, last);
	if (from + 8 > end)
		return 0; /* never */
	*(rs_u64 *)(out + last) = *(const rs_u64 *)from;
	return bytes;
}

/* Copies the head of a frame; a tag from metadata is inserted after the addresses. */
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

INLINE void wake_reader(void)
{
	void *nothing = rs_reserve(MAP(BELL_FD), 8, 0);

	if (nothing)
		rs_discard(nothing, WAKE_UP);
}

/* A reader of the sum sees all earlier stores, and no later one. */
INLINE void add_in_order(rs_u64 *to, rs_u64 number)
{
#if STRONGLY_ORDERED
	__sync_fetch_and_add(to, number);
#else /* Only an addition with a result is ordered: from LLVM 12, on arm64 Linux 5.18. LLVM 21 gives
       * bcc's BPF CPU no result of an addition; of a subtraction it does, by the same instruction. */
	rs_u64 before = __sync_fetch_and_sub(to, -number);

	asm volatile("" : : "r"(before));
#endif
}

/*
 * Writes a record with at most `most` bytes of a frame; 0: the ring is full.
 *
 * The time is read after the ring was marked. So if the mark is missing at a later
 * time, all records before that time are in the ring: user space can order the
 * records of several CPUs. A probe that interrupts another one during its record
 * finds two marks, and counts the ring as full.
 */
INLINE int write_record(struct ring *ring, rs_u32 tap, const rs_u8 *data, const rs_u8 *end,
			rs_u32 wire_bytes, rs_u32 tag, const rs_u32 most)
{
	struct record_header *record;
	rs_u64 marked, head, at;
	rs_u32 index, bytes;
	rs_u8 *chunk;

	add_in_order(&ring->head, MARK);
	marked = *(volatile rs_u64 *)&ring->head;
	head = marked - MARK;
	if (head & MARKS) {
		add_in_order(&ring->head, -MARK);
		return 0;
	}
	at = head & (CHUNK_BYTES - 1);
	asm volatile("" : "+r"(at)); /* keeps the checked register in use */
	if (at > CHUNK_BYTES - LARGEST_RECORD) {
		head += CHUNK_BYTES - at; /* a record is inside one chunk */
		at = 0;
	}
	index = ring->first_chunk + (head & (RING_BYTES - 1)) / CHUNK_BYTES;
	chunk = rs_lookup(MAP(CHUNKS_FD), &index);
	if (!chunk || head + sizeof(*record) + most - ring->tail > RING_BYTES) {
		add_in_order(&ring->head, -MARK);
		return 0;
	}
	record = (struct record_header *)(chunk + at);
	record->time_ns = rs_ktime();
	record->wire_bytes = wire_bytes;
	record->tap = tap;
	bytes = copy_frame((rs_u8 *)(record + 1), data, end, tag, most);
	record->captured_bytes = bytes;
	head += sizeof(*record) + ((bytes + 7) & ~7u);
	add_in_order(&ring->head, head - marked);
	if ((marked ^ head) >= RING_BYTES / 4) /* another quarter starts */
		wake_reader();
	return 1;
}
