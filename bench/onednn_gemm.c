/* onednn_gemm: our matrix products against oneDNN's, in turn in one process. Prints one JSON object for `titan bench report`.
 *
 *	onednn_gemm [--quick] [--busy]
 *
 * --busy: for a machine that others use: one thread only, single runs by the thread's own time.
 *
 * A peer of `make bench` where oneDNN 2 is installed (Debian: libdnnl-dev); nothing else needs it. Every product of the library is there twice:
 *   any    operands as the library likes them best. Weights are brought there before the timing, as ours are; for dW, both of whose operands
 *          are new at every step, inside it, as ours
 *   plain  operands as rows
 * Our forward in K segments (bench.h) stands beside the library's forward, which has no such thing.
 *
 * A race that was disturbed, or in which we fall below LEAST of the library, is run once more; the better times of both sides count.
 *
 * Both sides have their operands in memory of huge pages, and the same number of threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <oneapi/dnnl/dnnl.h>

#include "base/machine.h"
#include "base/version.h"
#include "cli/bench.h"

#if DNNL_VERSION_MAJOR != 2
#error "written for the C interface of oneDNN 2"
#endif

void omp_set_num_threads(int n); /* of the library's runtime; not from omp.h, which clang may lack */

#define DNN(call)                                                                                                      \
	do {                                                                                                           \
		dnnl_status_t status_ = (call);                                                                        \
		TT_ASSERT(status_ == dnnl_success, "%s: oneDNN status %d", #call, (int)status_);                      \
	} while (0)

typedef struct operand {
	dnnl_memory_desc_t desc;
	dnnl_memory_t memory;
	tt_region bytes;
} operand;

/* C = A B, after bringing A and B into the library's own order where `fresh` says that they are new each time. */
typedef struct product {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	operand plain[2], own[2], c;
	bool moved[2], fresh;
	dnnl_primitive_t move[2], multiply;
} product;

static operand operand_of(dnnl_engine_t engine, const dnnl_memory_desc_t *desc)
{
	operand o = { .desc = *desc };
	tt_status s = tt_region_open("operand", TT_MAX(dnnl_memory_desc_get_size(desc), (size_t)64), &o.bytes);
	TT_ASSERT(s == TT_OK, "%s", tt_error_text());
	DNN(dnnl_memory_create(&o.memory, desc, engine, o.bytes.p));
	return o;
}

static void operand_fini(operand *o)
{
	if (!o->memory)
		return;
	DNN(dnnl_memory_destroy(o->memory));
	tt_region_close(&o->bytes);
}

static void fill(operand *o, bool bf16)
{
	for (size_t i = 0, n = dnnl_memory_desc_get_size(&o->desc) / (bf16 ? 2 : 4); i < n; i++) {
		float v = (float)((double)(tt_mix64(i & 0x1fff) >> 40) * 0x1p-23 - 1);
		if (bf16)
			((tt_bf16 *)o->bytes.p)[i] = tt_f32_to_bf16(v);
		else
			((float *)o->bytes.p)[i] = v;
	}
}

static void execute(dnnl_primitive_t p, dnnl_stream_t s, int n, const dnnl_exec_arg_t *args)
{
	DNN(dnnl_primitive_execute(p, s, n, args));
	DNN(dnnl_stream_wait(s));
}

static void move(product *p, int i)
{
	execute(p->move[i], p->stream, 2, (dnnl_exec_arg_t[]){ { DNNL_ARG_FROM, p->plain[i].memory }, { DNNL_ARG_TO, p->own[i].memory } });
}

static void run(void *ctx)
{
	product *p = ctx;
	for (int i = 0; i < 2; i++)
		if (p->moved[i] && p->fresh)
			move(p, i);
	execute(p->multiply, p->stream, 3, (dnnl_exec_arg_t[]){ { DNNL_ARG_SRC, p->moved[0] ? p->own[0].memory : p->plain[0].memory },
								  { DNNL_ARG_WEIGHTS, p->moved[1] ? p->own[1].memory : p->plain[1].memory },
								  { DNNL_ARG_DST, p->c.memory } });
}

/* C [r,c] = A [r,k] B [k,c]; strides of A and B as they lie. */
static void product_init(product *p, int64_t r, int64_t c, int64_t k, const dnnl_dims_t a_strides, const dnnl_dims_t b_strides, bool bf16, bool c_bf16,
			 bool any, bool fresh)
{
	dnnl_data_type_t in = bf16 ? dnnl_bf16 : dnnl_f32, out = c_bf16 ? dnnl_bf16 : dnnl_f32;
	dnnl_dims_t dims[3] = { { r, k }, { k, c }, { r, c } };
	dnnl_memory_desc_t plain[2], want[2], c_desc;
	*p = (product){ .fresh = fresh };
	DNN(dnnl_engine_create(&p->engine, dnnl_cpu, 0));
	DNN(dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags));
	for (int i = 0; i < 2; i++) {
		DNN(dnnl_memory_desc_init_by_strides(&plain[i], 2, dims[i], in, i ? b_strides : a_strides));
		want[i] = plain[i];
		if (any && (i == 1 || fresh)) /* activations stay as they are */
			DNN(dnnl_memory_desc_init_by_tag(&want[i], 2, dims[i], in, dnnl_format_tag_any));
	}
	DNN(dnnl_memory_desc_init_by_tag(&c_desc, 2, dims[2], out, dnnl_ab));
	dnnl_matmul_desc_t desc;
	dnnl_primitive_desc_t pd;
	DNN(dnnl_matmul_desc_init(&desc, &want[0], &want[1], NULL, &c_desc));
	DNN(dnnl_primitive_desc_create(&pd, &desc, NULL, p->engine, NULL));
	DNN(dnnl_primitive_create(&p->multiply, pd));
	for (int i = 0; i < 2; i++) {
		const dnnl_memory_desc_t *got = dnnl_primitive_desc_query_md(pd, i ? dnnl_query_weights_md : dnnl_query_src_md, 0);
		p->plain[i] = operand_of(p->engine, &plain[i]);
		fill(&p->plain[i], bf16);
		p->moved[i] = !dnnl_memory_desc_equal(got, &plain[i]);
		if (!p->moved[i])
			continue;
		dnnl_primitive_desc_t rd;
		p->own[i] = operand_of(p->engine, got);
		DNN(dnnl_reorder_primitive_desc_create(&rd, &plain[i], p->engine, got, p->engine, NULL));
		DNN(dnnl_primitive_create(&p->move[i], rd));
		DNN(dnnl_primitive_desc_destroy(rd));
		move(p, i);
	}
	p->c = operand_of(p->engine, &c_desc);
	DNN(dnnl_primitive_desc_destroy(pd));
}

static void product_fini(product *p)
{
	if (!p->engine)
		return;
	for (int i = 0; i < 2; i++) {
		operand_fini(&p->plain[i]);
		operand_fini(&p->own[i]);
		if (p->move[i])
			DNN(dnnl_primitive_destroy(p->move[i]));
	}
	operand_fini(&p->c);
	DNN(dnnl_primitive_destroy(p->multiply));
	DNN(dnnl_stream_destroy(p->stream));
	DNN(dnnl_engine_destroy(p->engine));
}

/* The product of bench.h in the library's terms. */
static void theirs(product *p, tt_product which, const tt_product_shape *s, bool bf16, bool any)
{
	const int64_t m = s->m, n = s->n, k = s->k;
	switch (which) {
	case TT_PRODUCT_FORWARD: /* Y [M,N] = X [M,K] W^T */
	case TT_PRODUCT_SEGMENTS:
		product_init(p, m, n, k, (dnnl_dims_t){ k, 1 }, (dnnl_dims_t){ 1, k }, bf16, bf16, any, false);
		break;
	case TT_PRODUCT_DX: /* dX [M,K] = dY [M,N] W */
		product_init(p, m, k, n, (dnnl_dims_t){ n, 1 }, (dnnl_dims_t){ k, 1 }, bf16, bf16, any, false);
		break;
	case TT_PRODUCT_DW: /* dW [N,K] = dY^T X [M,K] */
		product_init(p, n, k, m, (dnnl_dims_t){ 1, n }, (dnnl_dims_t){ k, 1 }, bf16, false, any, true);
		break;
	case TT_NPRODUCTS:
		break;
	}
}

static double own_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Whether one of ours takes longer than the library's better form by more than LEAST allows. r: ours, then its any, its plain where it has them. */
static bool behind(const tt_runner *r, int n)
{
	const double LEAST = 0.85;
	for (int i = 0; i + 2 < n; i++)
		if (r[i].run == tt_bench_program_run && r[i + 1].run == run && TT_MIN(r[i + 1].seconds, r[i + 2].seconds) < LEAST * r[i].seconds)
			return true;
	return false;
}

static json_t *race_shape(const tt_product_shape *s, bool bf16, int threads, tt_isa isa, bool busy)
{
	static const tt_product which[] = { TT_PRODUCT_FORWARD, TT_PRODUCT_DX, TT_PRODUCT_DW, TT_PRODUCT_SEGMENTS };
	enum { N = TT_COUNT(which) };
	tt_arena *a = tt_arena_create("bench");
	tt_bench_env env = { isa, threads };
	tt_bench_program mine[N] = { 0 };
	product other[2 * N] = { 0 };
	tt_runner r[3 * N];
	int n = 0;
	omp_set_num_threads(threads);
	for (int i = 0; i < N; i++) {
		if (!tt_product_runs(which[i], s))
			continue;
		const char *name = tt_product_name(which[i]);
		tt_status status = tt_bench_product(a, which[i], s, bf16 ? TT_BF16 : TT_F32, &env, &mine[i]);
		TT_ASSERT(status == TT_OK, "%s", tt_error_text());
		r[n++] = (tt_runner){ name, tt_bench_program_run, &mine[i], 0, 0 };
		for (int any = 0; any < 2 && which[i] != TT_PRODUCT_SEGMENTS; any++) {
			theirs(&other[2 * i + any], which[i], s, bf16, any);
			r[n++] = (tt_runner){ tt_arena_printf(a, "%s_%s", name, any ? "any" : "plain"), run, &other[2 * i + any], 0, 0 };
		}
	}
	tt_race race = tt_race_of(busy ? 10 : 3);
	if (busy) {
		race.slice = race.pause = 0;
		race.quiet = 1e9;
		race.clock = own_time;
	}
	tt_race_run(&race, r, n);
	if (race.noisy || behind(r, n))
		tt_race_again(&race, r, n);
	json_t *row = json_pack("{s:I, s:I, s:I, s:s, s:i, s:f, s:b}", "m", (json_int_t)s->m, "n", (json_int_t)s->n, "k", (json_int_t)s->k, "dtype",
				bf16 ? "bf16" : "f32", "threads", threads, "others", race.others, "noisy", race.noisy);
	for (int i = 0; i < n; i++)
		json_object_set_new(row, r[i].name, json_real(2 * (double)s->m * (double)s->n * (double)s->k / r[i].seconds / 1e9));
	for (int i = 0; i < N; i++)
		tt_exec_destroy(mine[i].exec);
	for (int i = 0; i < 2 * N; i++)
		product_fini(&other[i]);
	tt_arena_destroy(a);
	return row;
}

int main(int argc, char **argv)
{
	bool quick = false, busy = false;
	for (int i = 1; i < argc; i++) {
		bool *flag = !strcmp(argv[i], "--quick") ? &quick : !strcmp(argv[i], "--busy") ? &busy : NULL;
		if (!flag) {
			fprintf(stderr, "onednn_gemm: %s is no flag: [--quick] [--busy]\n", argv[i]);
			return 2;
		}
		*flag = true;
	}
	int all = busy ? 1 : tt_machine_threads();
	const dnnl_version_t *v = dnnl_version();
	char other[64];
	snprintf(other, sizeof other, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
	json_t *rows = json_array();
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int t = 0; t < (all > 1 ? 2 : 1); t++)
			for (const tt_product_shape *s = tt_product_shapes; s->m; s++)
				if (!quick || s->quick)
					json_array_append_new(rows, race_shape(s, bf16, t ? all : 1, tt_isa_detect(), busy));
	json_t *j = json_pack("{s:s, s:s, s:s, s:i, s:o}", "bench", "onednn", "peer", "titan.c " TT_VERSION, "other", other, "threads", all, "rows", rows);
	char *text = json_dumps(j, JSON_REAL_PRECISION(9));
	puts(text);
	free(text);
	json_decref(j);
	return 0;
}
