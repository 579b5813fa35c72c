/* plugin.c: one MPI behind comm/mpi_abi.h. MPI-3 calls only. Compiled once per MPI, with TT_MPI_NAME, into a shared object of its own. */
#include <mpi.h>
#include <stdlib.h>

#include "comm/mpi_abi.h"

static MPI_Comm channels[TT_MPI_CHANNELS];

static const char *version(void)
{
	static char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int n;
	MPI_Get_library_version(text, &n);
	text[strcspn(text, "\n,")] = 0;
	return text;
}

static int init(int *rank, int *size, int *tag_most)
{
#ifdef OPEN_MPI
	/* With more ranks than cores it gives the core away at each look that finds nothing, to whatever else runs: ranks wait here asleep, so that a look costs nobody. */
	setenv("OMPI_MCA_mpi_yield_when_idle", "0", 0);
#endif
	int given, r = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &given);
	if (r)
		return r;
	if (given < MPI_THREAD_SERIALIZED)
		return MPI_ERR_OTHER;
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	for (int i = 0; i < TT_MPI_CHANNELS && !r; i++) {
		r = MPI_Comm_dup(MPI_COMM_WORLD, &channels[i]);
		if (!r)
			MPI_Comm_set_errhandler(channels[i], MPI_ERRORS_RETURN);
	}
	int *most, found = 0;
	MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
	*tag_most = found ? *most : 32767;
	MPI_Comm_rank(MPI_COMM_WORLD, rank);
	MPI_Comm_size(MPI_COMM_WORLD, size);
	return r;
}

/* Lines and planes that follow each other are one line. A type is made for what has gaps; MPI keeps it until its messages are done. */
static int type_of(const tt_block *b, MPI_Datatype *type, int *count, int *made)
{
	int64_t line = b->bytes, lines = b->lines, planes = b->planes, ld = b->ld, plane = b->plane;
	*made = 0;
	*type = MPI_BYTE;
	if (lines > 1 && ld == line) {
		line *= lines;
		lines = 1;
	}
	if (lines == 1 && planes > 1) {
		lines = planes;
		ld = plane;
		planes = 1;
		if (ld == line) {
			line *= lines;
			lines = 1;
		}
	}
	*count = (int)(line * lines * planes);
	if (!*count || (lines == 1 && planes == 1))
		return MPI_SUCCESS;
	MPI_Datatype one, all;
	int r = MPI_Type_create_hvector((int)lines, (int)line, (MPI_Aint)ld, MPI_BYTE, &one);
	if (r)
		return r;
	all = one;
	if (planes > 1) {
		r = MPI_Type_create_hvector((int)planes, 1, (MPI_Aint)plane, one, &all);
		MPI_Type_free(&one);
		if (r)
			return r;
	}
	*type = all;
	*count = 1;
	*made = 1;
	return MPI_Type_commit(type);
}

static void put(tt_mpi_request *out, MPI_Request r)
{
	_Static_assert(sizeof r <= sizeof out->word[0], "an MPI_Request is a handle");
	memset(out, 0, sizeof *out);
	memcpy(&out->word[0], &r, sizeof r);
	out->word[1] = 1;
}

static int send_block(int channel, int to, int tag, const tt_block *b, tt_mpi_request *out)
{
	MPI_Datatype type;
	MPI_Request r;
	int count, made, e = type_of(b, &type, &count, &made);
	if (e)
		return e;
	e = MPI_Isend(b->p, count, type, to, tag, channels[channel], &r);
	if (made)
		MPI_Type_free(&type);
	if (!e)
		put(out, r);
	return e;
}

static int recv_block(int channel, int from, int tag, const tt_block *b, tt_mpi_request *out)
{
	MPI_Datatype type;
	MPI_Request r;
	int count, made, e = type_of(b, &type, &count, &made);
	if (e)
		return e;
	e = MPI_Irecv((void *)(uintptr_t)b->p, count, type, from < 0 ? MPI_ANY_SOURCE : from, tag, channels[channel], &r);
	if (made)
		MPI_Type_free(&type);
	if (!e)
		put(out, r);
	return e;
}

static int test(tt_mpi_request *q)
{
	MPI_Request r;
	int done = 0;
	memcpy(&r, &q->word[0], sizeof r);
	int e = MPI_Test(&r, &done, MPI_STATUS_IGNORE);
	memcpy(&q->word[0], &r, sizeof r);
	q->word[1] = !done;
	return e;
}

static void cancel(tt_mpi_request *q)
{
	MPI_Request r;
	memcpy(&r, &q->word[0], sizeof r);
	MPI_Cancel(&r);
	MPI_Wait(&r, MPI_STATUS_IGNORE); /* a cancelled receive does not wait for anybody */
	q->word[1] = 0;
}

static void error_text(int code, char *text, int cap)
{
	char all[MPI_MAX_ERROR_STRING];
	int n = 0;
	if (MPI_Error_string(code, all, &n))
		n = 0;
	n = n < cap - 1 ? n : cap - 1;
	memcpy(text, all, (size_t)n);
	text[n] = 0;
}

static void finish(void)
{
	for (int i = 0; i < TT_MPI_CHANNELS; i++)
		MPI_Comm_free(&channels[i]);
	MPI_Finalize();
}

static void abort_all(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

static int raw_all_gather(const float *mine, float *all, int n) { return MPI_Allgather(mine, n, MPI_FLOAT, all, n, MPI_FLOAT, channels[TT_MPI_DATA]); }

static int raw_reduce_scatter(const float *terms, float *mine, int n)
{
	return MPI_Reduce_scatter_block(terms, mine, n, MPI_FLOAT, MPI_SUM, channels[TT_MPI_DATA]);
}

static int raw_all_to_all(const float *parts, float *all, int n) { return MPI_Alltoall(parts, n, MPI_FLOAT, all, n, MPI_FLOAT, channels[TT_MPI_DATA]); }

const tt_mpi_api tt_mpi_plugin = {
	.abi = TT_MPI_ABI, .name = TT_MPI_NAME, .version = version, .init = init, .send = send_block, .recv = recv_block, .test = test, .cancel = cancel,
	.error = error_text, .finish = finish, .abort = abort_all, .raw_all_gather = raw_all_gather, .raw_reduce_scatter = raw_reduce_scatter,
	.raw_all_to_all = raw_all_to_all,
};
