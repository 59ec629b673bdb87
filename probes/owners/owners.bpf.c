// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Reports queue pairs that processes create, connect and destroy through libibverbs.
 *
 * Includes no header. Definitions that precede this text at compilation (uprobes.py):
 *   EVENTS_FD, CALLS_FD, LOST_FD        file descriptors of the maps
 *   ARGUMENT_1, _2, _3, RETURN_VALUE    offsets in the saved registers (struct pt_regs)
 *   PID_NAMESPACE_DEVICE, _INODE        of the process that reads the events
 *
 * Only successful calls are reported: the arguments are stored from the entry of a
 * function until it returns.
 */

typedef unsigned char rs_u8;
typedef unsigned short rs_u16;
typedef unsigned int rs_u32;
typedef unsigned long long rs_u64;

#define INLINE static inline __attribute__((always_inline))

#define CREATED 1
#define MODIFIED 2
#define DESTROYED 3

/* libibverbs's public ABI (infiniband/verbs.h), the same since version 1.1 of its symbols. */
#define QP_CONTEXT 0
#define QP_NUMBER 52
#define QP_TYPE 60
#define CONTEXT_DEVICE 0
#define DEVICE_NAME 24
#define ATTRIBUTE_STATE 0
#define ATTRIBUTE_PATH_MTU 8
#define ATTRIBUTE_RQ_PSN 20
#define ATTRIBUTE_SQ_PSN 24
#define ATTRIBUTE_DEST_QP 28
#define ATTRIBUTE_DGID 56
#define ATTRIBUTE_SGID_INDEX 76
#define ATTRIBUTE_IS_GLOBAL 85
#define ATTRIBUTE_PORT 86

#define COMMAND_BYTES 16
#define DEVICE_BYTES 64
#define GID_BYTES 16

/* uprobes.py reads this layout. */
struct qp_event {
	rs_u64 time_ns; /* CLOCK_MONOTONIC */
	rs_u64 qp;	/* address of the process's struct ibv_qp */
	rs_u32 pid;
	rs_u32 kind;
	rs_u32 local_qp;
	rs_u32 type;
	rs_u32 mask; /* enum ibv_qp_attr_mask: which of the following are set */
	rs_u32 state;
	rs_u32 path_mtu;
	rs_u32 rq_psn;
	rs_u32 sq_psn;
	rs_u32 remote_qp;
	rs_u8 remote_gid[GID_BYTES];
	char command[COMMAND_BYTES];
	char device[DEVICE_BYTES];
	rs_u8 has_gid;
	rs_u8 port;
	rs_u8 gid_index;
	rs_u8 padding[5];
};

/* A call that has not returned yet, by thread. */
struct call {
	rs_u64 qp;
	rs_u64 attributes;
	rs_u64 device;
	rs_u32 mask;
	rs_u32 local_qp;
};

rs_u64 rs_pseudo_fd(rs_u64, rs_u64) asm("llvm.bpf.pseudo");
#define MAP(fd) ((void *)rs_pseudo_fd(1 /* BPF_PSEUDO_MAP_FD */, fd))

static void *(*rs_lookup)(void *map, const void *key) = (void *)1;
static long (*rs_update)(void *map, const void *key, const void *value, rs_u64 flags) = (void *)2;
static long (*rs_delete)(void *map, const void *key) = (void *)3;
static rs_u64 (*rs_ktime)(void) = (void *)5;
static rs_u64 (*rs_pid_tgid)(void) = (void *)14;
static long (*rs_command)(void *buffer, rs_u32 bytes) = (void *)16;
static long (*rs_push)(void *queue, const void *value, rs_u64 flags) = (void *)87;
static long (*rs_read_user)(void *to, rs_u32 bytes, const void *from) = (void *)112;
static long (*rs_read_user_text)(void *to, rs_u32 bytes, const void *from) = (void *)114;
static long (*rs_namespace_pid)(rs_u64 device, rs_u64 inode, void *ids, rs_u32 bytes) = (void *)120;

#define REGISTER(context, offset) (*(volatile rs_u64 *)((rs_u8 *)(context) + (offset)))
#define FETCH(to, base, offset) rs_read_user(&(to), sizeof(to), (const void *)((base) + (offset)))

INLINE void count_lost(void)
{
	rs_u32 zero = 0;
	rs_u64 *lost = rs_lookup(MAP(LOST_FD), &zero);
	if (lost)
		__sync_fetch_and_add(lost, 1);
}

/* PID of this process in the reader's namespace, or else in the outermost namespace. */
INLINE rs_u32 process(void)
{
	struct {
		rs_u32 thread;
		rs_u32 process;
	} ids;
	if (rs_namespace_pid(PID_NAMESPACE_DEVICE, PID_NAMESPACE_INODE, &ids, sizeof(ids)))
		return rs_pid_tgid() >> 32;
	return ids.process;
}

INLINE rs_u64 device_of(rs_u64 qp)
{
	rs_u64 context = 0, device = 0;
	FETCH(context, qp, QP_CONTEXT);
	FETCH(device, context, CONTEXT_DEVICE);
	return device;
}

/* Starts an event of a queue pair; the caller completes and submits it. */
INLINE void begin(struct qp_event *event, rs_u32 kind, rs_u64 qp, rs_u64 device)
{
	__builtin_memset(event, 0, sizeof(*event));
	event->time_ns = rs_ktime();
	event->pid = process();
	event->kind = kind;
	event->qp = qp;
	rs_command(event->command, COMMAND_BYTES);
	rs_read_user_text(event->device, DEVICE_BYTES, (const void *)(device + DEVICE_NAME));
}

INLINE void tell(const struct qp_event *event)
{
	if (rs_push(MAP(EVENTS_FD), event, 0))
		count_lost();
}

/* Stores what is not available when the function returns. */
INLINE void remember(rs_u64 qp, rs_u64 attributes, rs_u32 mask)
{
	struct call call = {};
	rs_u64 thread = rs_pid_tgid();
	call.qp = qp;
	call.attributes = attributes;
	call.mask = mask;
	call.device = device_of(qp);
	FETCH(call.local_qp, qp, QP_NUMBER);
	if (rs_update(MAP(CALLS_FD), &thread, &call, 0))
		count_lost();
}

/* The call that returns, if it succeeded. */
INLINE int recall(void *context, struct call *call)
{
	rs_u64 thread = rs_pid_tgid();
	struct call *found = rs_lookup(MAP(CALLS_FD), &thread);
	if (!found)
		return 0;
	*call = *found;
	rs_delete(MAP(CALLS_FD), &thread);
	return (rs_u32)REGISTER(context, RETURN_VALUE) == 0;
}

int create_return(void *context)
{
	rs_u64 qp = REGISTER(context, RETURN_VALUE);
	struct qp_event event;
	if (!qp)
		return 0;
	begin(&event, CREATED, qp, device_of(qp));
	FETCH(event.local_qp, qp, QP_NUMBER);
	FETCH(event.type, qp, QP_TYPE);
	tell(&event);
	return 0;
}

int modify_entry(void *context)
{
	remember(REGISTER(context, ARGUMENT_1), REGISTER(context, ARGUMENT_2),
		 REGISTER(context, ARGUMENT_3));
	return 0;
}

int modify_return(void *context)
{
	struct call call;
	struct qp_event event;
	if (!recall(context, &call))
		return 0;
	begin(&event, MODIFIED, call.qp, call.device);
	event.local_qp = call.local_qp;
	FETCH(event.type, call.qp, QP_TYPE);
	event.mask = call.mask;
	FETCH(event.state, call.attributes, ATTRIBUTE_STATE);
	FETCH(event.path_mtu, call.attributes, ATTRIBUTE_PATH_MTU);
	FETCH(event.rq_psn, call.attributes, ATTRIBUTE_RQ_PSN);
	FETCH(event.sq_psn, call.attributes, ATTRIBUTE_SQ_PSN);
	FETCH(event.remote_qp, call.attributes, ATTRIBUTE_DEST_QP);
	FETCH(event.remote_gid, call.attributes, ATTRIBUTE_DGID);
	FETCH(event.has_gid, call.attributes, ATTRIBUTE_IS_GLOBAL);
	FETCH(event.port, call.attributes, ATTRIBUTE_PORT);
	FETCH(event.gid_index, call.attributes, ATTRIBUTE_SGID_INDEX);
	tell(&event);
	return 0;
}

int destroy_entry(void *context)
{
	remember(REGISTER(context, ARGUMENT_1), 0, 0);
	return 0;
}

int destroy_return(void *context)
{
	struct call call;
	struct qp_event event;
	if (!recall(context, &call))
		return 0;
	begin(&event, DESTROYED, call.qp, call.device);
	event.local_qp = call.local_qp;
	tell(&event);
	return 0;
}
