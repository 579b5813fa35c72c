/* mpi.h: what the files of the mpi backend share: launch.c, keeper.c, job.c (from start to end), mpi.c (the exchange), peers.c (who
 * lives). */
#ifndef TT_COMM_MPI_H
#define TT_COMM_MPI_H

#include <pthread.h>

#include "comm/internal.h"
#include "comm/mpi_abi.h"

/* Who a rank is; told once. */
typedef struct tt_mpi_hello {
	char version[32], host[64];
	uint64_t machine;   /* of the system's boot and its process numbers: ranks with the same can look each other's processes up */
	uint64_t program;   /* hash of its file */
	uint64_t cores;     /* hash of those it may use */
	int64_t pid, born;  /* process, and the tick it was started at */
} tt_mpi_hello;

/* A sign of life: sent to all again and again, and once more as the last message. */
typedef struct tt_mpi_beat {
	int32_t rank, ended, last;
	int32_t asked; /* the signal that asked it to end; 0: none */
	int32_t waits_for; /* the first rank that it has waited for a while for; -1: none */
	tt_last now;
} tt_mpi_beat;

typedef struct tt_mpi_peer {
	tt_mpi_hello hello;
	tt_mpi_beat beat;       /* its newest */
	double heard;           /* when that came */
	tt_mpi_beat out;        /* on its way there */
	tt_mpi_request sending;
} tt_mpi_peer;

enum { TT_MPI_TEXT = 3000 };
typedef struct tt_mpi_end { int32_t code, culprit; char text[TT_MPI_TEXT]; } tt_mpi_end;

typedef struct tt_mpi_world {
	const tt_mpi_api *api;
	tt_comm comm;
	tt_recorder recorder;
	tt_arena *arena;
	int tag_most;
	int64_t message_bytes;
	const volatile sig_atomic_t *asked, *terminated; /* by the run's handler; by SIGTERM before that stands */
	void (*hear)(int number, int rank); /* of rank 0; NULL: none */
	double others_asked;    /* when this rank saw first that another was asked to end */
	bool told;              /* for whom this rank waits though it was asked to end: once */
	tt_mpi_peer *peers;     /* [size] */
	uint64_t *machines, *programs; /* [size] */
	double init_timeout_s, period;
	/* MPI is called under it, by one thread at a time: a rank's threads, and the one that beats. */
	pthread_mutex_t lock;
	_Atomic int wanting;    /* threads that wait for it to make an exchange */
	pthread_cond_t wake;
	pthread_t beater;
	bool beating, quit;     /* under `lock` */
	_Atomic bool up;        /* MPI_Init has returned */
	_Atomic bool aborted;   /* set once, after `end` */
	_Atomic bool adopted;   /* this rank's own thread knows */
	_Atomic bool ended;
	_Atomic int waits_for; /* told of by `waiter` */
	_Atomic(const tt_comm_group *) waiter;
	tt_mpi_end end, end_in, end_out;
	tt_mpi_beat beat_in;
	tt_mpi_request end_request, beat_request;
	int byes;
	int listens;            /* a socket by which this machine's ranks find each other: closed once this one has said its last */
	bool near;              /* all ranks are found so */
	struct tt_mpi_fault *fault; /* of a test; NULL: none */
} tt_mpi_world;

/* For tests, TITAN_FAULT=ACTION:RANK:PATTERN:COUNT: what this rank does when it comes to the COUNTth exchange whose kind or name matches, or, where the
 * pattern is "init", before MPI_Init. */
typedef enum tt_mpi_fault_what { TT_FAULT_NONE, TT_FAULT_STOP, TT_FAULT_KILL, TT_FAULT_HANG, TT_FAULT_FAIL, TT_FAULT_NAME, TT_FAULT_SHAPE, TT_FAULT_SLOW, TT_FAULT_ASK } tt_mpi_fault_what;
typedef struct tt_mpi_fault { tt_mpi_fault_what what; int64_t left; char pattern[64]; } tt_mpi_fault;
void tt_mpi_fault_read(tt_mpi_world *w);
/* Stops, kills, lets hang or delays this process if it is time, or says what else is to be done. */
tt_mpi_fault_what tt_mpi_fault_at(tt_mpi_world *w, const char *kind, const char *name);

tt_status tt_mpi_open(const tt_comm_launch *l, const tt_mpi_api **out) TT_CHECKED;
int tt_mpi_launcher(void); /* the process whose children this machine's ranks, or their keepers, are */
void tt_mpi_end_job(int code); /* asks MPICH's launcher to end all ranks; of other launchers nothing */

extern const tt_comm_backend tt_mpi_backend;
void tt_mpi_group_close(tt_comm_group *g);
tt_status tt_mpi_error(const tt_mpi_world *w, int code, const char *where) TT_CHECKED; /* MPI's error code as an error */

/* Under `lock`: takes what has come of texts and signs of life. */
void tt_mpi_look(tt_mpi_world *w);
/* Under `lock`: the world is over, with this text; tells nobody. The first one counts. */
void tt_mpi_over(tt_mpi_world *w, tt_status code, int culprit, const char *text);
tt_block tt_mpi_flat(const void *p, size_t n);

void tt_mpi_hello_fill(tt_mpi_hello *h);
/* Before MPI_Init and after: the thread that beats, and that ends the process if MPI_Init does not return. */
tt_status tt_mpi_beater_start(tt_mpi_world *w) TT_CHECKED;
void tt_mpi_beater_stop(tt_mpi_world *w);
/* The last messages to all, and those of all. */
void tt_mpi_part(tt_mpi_world *w);
typedef enum tt_mpi_life { TT_MPI_LIVES, TT_MPI_STOPPED, TT_MPI_GONE, TT_MPI_UNSEEN } tt_mpi_life;
tt_mpi_life tt_mpi_life_of(const tt_mpi_world *w, int rank); /* UNSEEN: on another machine */
int64_t tt_mpi_who_listens(int rank); /* the process of this machine that is `rank` of this job, as it says before it is greeted; 0: none */
void tt_mpi_unlisten(tt_mpi_world *w);
/* Is there a rank that lives and has not yet said what it has to? Does the socket show all ranks? */
bool tt_mpi_others_speak(const tt_mpi_world *w);
bool tt_mpi_all_near(const tt_mpi_world *w);
void tt_mpi_sleep(double seconds);

#endif
