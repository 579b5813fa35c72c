/* internal.h: what the files of comm share: a rank, a group, the table of a backend, the flight recorder. */
#ifndef TT_COMM_INTERNAL_H
#define TT_COMM_INTERNAL_H

#include "comm/comm.h"

/* One way of moving blocks. `open` fills tt_comm_group.own. `arrive` returns when x->take is readable, `leave` when what the rank gave
 * may change again; an error of either
 * is everybody's, and nobody reads this rank's memory any more when they return it. */
typedef struct tt_comm_backend {
	const char *name;
	bool sees_memory; /* of other ranks: no scratch */
	bool records_only; /* nothing arrives: `use` is not called */
	tt_status (*open)(tt_comm_group *g);
	tt_status (*arrive)(tt_comm_group *g, tt_exchange *x);
	tt_status (*leave)(tt_comm_group *g, tt_exchange *x);
	void (*abort)(tt_comm *c, tt_status code, const char *text);
	void (*record)(const tt_comm *c, tt_buf *b); /* tt_comm_record_print */
} tt_comm_backend;

/* One exchange in the recorder. Written by its rank, read by any at any time: a torn line of a diagnosis is no harm, so each field is
 * an atomic of its own and there is no lock. `kind` is a literal, `group` lives as long as the world. */
enum { TT_RECORD = 64 };
typedef enum tt_record_state { TT_REC_NONE, TT_REC_WAITS, TT_REC_USES, TT_REC_LEAVES, TT_REC_DONE } tt_record_state;
typedef struct tt_record {
	_Atomic(const char *) kind, group;
	_Atomic uint64_t name[12]; /* of the value, cut to 95 bytes: a copy, as graphs do not outlive their rank */
	_Atomic int64_t seq, bytes;
	_Atomic double at; /* tt_now when it began */
	_Atomic int state;
} tt_record;

typedef struct tt_recorder {
	tt_record ring[TT_RECORD];
	_Atomic int64_t claimed; /* entries that some thread of the rank has taken to write */
	_Atomic int64_t n; /* exchanges begun */
} tt_recorder;

struct tt_comm {
	const tt_comm_backend *backend;
	void *world; /* the backend's */
	int rank, size;
	tt_comm *whole; /* of tt_comm_sub: what it is a part of */
	double timeout_s;
	int neighbours; /* ranks that share its cores, itself included */
	const uint64_t *machines; /* [size] where ranks are; NULL: all on this one */
	const uint64_t *programs; /* [size] hashes of program files; NULL: all are this one */
	double silence_s; /* the last timeout that was one: so long a rank that is waited for without one may be silent */
	int64_t delay_us;
	int spin_us;
	tt_arena *arena;
	tt_recorder *recorder;
	tt_comm_group *groups; /* a list */
};

struct tt_comm_group {
	tt_comm *comm;
	tt_comm_group *next;
	const char *name;
	bool beside; /* of another thread than the rank's own, and without a timeout */
	int n, index;
	int *ranks;
	int64_t seq; /* exchanges begun */
	tt_comm_count count;
	void *own; /* the backend's */
};

static inline double tt_group_timeout(const tt_comm_group *g) { return g->beside ? 0 : g->comm->timeout_s; }

void tt_recorder_print(const tt_recorder *r, int rank, int last, tt_buf *b);
/* The newest entry, by value. */
typedef struct tt_last {
	int64_t n, seq; /* exchanges begun; its number in the group */
	char kind[24], group[48], name[96];
} tt_last;
void tt_recorder_last(const tt_recorder *r, tt_last *out);
/* "all-gather #12 of dp \"model.norm.weight\"", or "no exchange yet". */
void tt_last_print(const tt_last *l, tt_buf *b);
void tt_recorder_newest(const tt_recorder *r, tt_buf *b); /* the same of the newest */

#endif
