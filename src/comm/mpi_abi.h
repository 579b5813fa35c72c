/* mpi_abi.h: between the program and a plug-in of one MPI. The program links no MPI: ABIs of MPIs differ, and MPI_Init alone takes a third of a
 * second, so a plug-in is built per MPI (src/comm/mpi/plugin.c) and opened under a launcher only. It moves blocks and knows nothing of exchanges.
 *
 * All calls return at once but init, finish and the raw ones, and are made by one thread at a time (MPI_THREAD_SERIALIZED). int results: 0, or MPI's
 * error code, of which `error` makes a text. */
#ifndef TT_COMM_MPI_ABI_H
#define TT_COMM_MPI_ABI_H

#include "comm/comm.h"

enum { TT_MPI_ABI = 2 };
/* A message is of one channel: exchanges, the text of an abort, signs of life. */
enum { TT_MPI_DATA, TT_MPI_ABORT, TT_MPI_BEAT, TT_MPI_CHANNELS };
enum { TT_MPI_MOST = 1 << 28 }; /* bytes of a message: counts are int, and some transports split larger ones badly */

typedef struct tt_mpi_request { uint64_t word[2]; } tt_mpi_request; /* word[1]: in use */

typedef struct tt_mpi_api {
	int abi;
	const char *name;           /* "openmpi": of the file */
	const char *(*version)(void); /* "Open MPI v4.1.4 ..." */
	int (*init)(int *rank, int *size, int *tag_most);
	/* A block of at most TT_MPI_MOST bytes. from -1: of any rank. Its memory belongs to MPI until the request is done. */
	int (*send)(int channel, int to, int tag, const tt_block *b, tt_mpi_request *out);
	int (*recv)(int channel, int from, int tag, const tt_block *b, tt_mpi_request *out);
	int (*test)(tt_mpi_request *r); /* a request that is done is no longer in use */
	void (*cancel)(tt_mpi_request *r); /* of a receive */
	void (*error)(int code, char *text, int cap);
	void (*finish)(void);
	void (*abort)(int code);    /* ends all processes of the job; does not return */
	/* The MPI's own collectives, for `titan bench comm` to compare with; they spin. n: floats of each rank's part. */
	int (*raw_all_gather)(const float *mine, float *all, int n);
	int (*raw_reduce_scatter)(const float *terms, float *mine, int n);
	int (*raw_all_to_all)(const float *parts, float *all, int n);
} tt_mpi_api;

#define TT_MPI_SYMBOL "tt_mpi_plugin"
extern const tt_mpi_api tt_mpi_plugin;

#endif
