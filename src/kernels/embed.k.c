/* Embedding lookup and its gradient. Legend: T tokens, V vocabulary (n lines of this shard, from id `first`), D model.
 * Both yield acc: the lookup is a sum over the vocabulary's shards, of which all but one give zeros. */
#include "kernels/exact.h"

static void lookup_lines(const tt_call *c, int64_t begin, int64_t end, bool exact)
{
	const tt_attr_vocab *attr = c->attr;
	const int32_t *ids = arg_i32(&c->in[0]);
	const tt_arg *w_vd = &c->in[1], *out = &c->out[0];
	int64_t width = arg_width(w_vd), lines = arg_lines(w_vd);
	real buf[SPAN], zero[SPAN];
	real_bits max = 0;
	memset(zero, 0, sizeof zero);
	FOR_SPANS(t, at, n, begin, end, width) {
		int64_t line = (int64_t)ids[t] - (attr ? attr->first : 0);
		const real *w = line >= 0 && line < lines ? span_load(buf, w_vd, line, at, n) : zero;
		if (exact) {
			exact_line_lift(exact_line_at(out, t, at), w, n);
			max = TT_MAX(max, exact_max_bits(w, n));
		} else {
			span_store(out, t, at, w, n);
		}
	}
	if (exact)
		exact_check(c, exact_max_value(max), 1);
}
static void lookup_fast_lines(const tt_call *c, int64_t begin, int64_t end) { lookup_lines(c, begin, end, false); }
static void lookup_exact_lines(const tt_call *c, int64_t begin, int64_t end) { lookup_lines(c, begin, end, true); }
static void embedding(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), lookup_fast_lines);
}
static void embedding_exact(const tt_call *c)
{
	tt_lines(c, arg_lines(&c->out[0]), lines_block(arg_width(&c->out[0])), lookup_exact_lines);
}

/* dW[v] = sum of dy[t] over the tokens with id v: in blocks of TOKEN_BLOCK, within a block one ascending chain per id, blocks
 * joined ascending. Each thread takes columns [at, end) of all lines. */
static void embedding_dw_part(const tt_call *c, int64_t at, int64_t end)
{
	const tt_attr_vocab *attr = c->attr;
	const int32_t *ids = arg_i32(&c->in[0]);
	const tt_arg *dy_td = &c->in[1], *out = &c->out[0];
	int64_t n = end - at, tokens = arg_lines(dy_td), lines = arg_lines(out), first = attr ? attr->first : 0;
	real buf[SPAN], part[SPAN];
	for (int64_t v = 0; v < lines; v++)
		memset(arg_real(out, v, at), 0, sizeof(real) * (size_t)n);
	for (int64_t b = 0; b < tokens; b += TOKEN_BLOCK) {
		int64_t stop = TT_MIN(tokens, b + TOKEN_BLOCK);
		bool done[TOKEN_BLOCK] = {0};
		for (int64_t t = b; t < stop; t++) {
			int64_t line = (int64_t)ids[t] - first;
			if (done[t - b] || line < 0 || line >= lines)
				continue;
			memset(part, 0, sizeof(real) * (size_t)n);
			for (int64_t u = t; u < stop; u++) {
				if (ids[u] != ids[t])
					continue;
				done[u - b] = true;
				const real *restrict dy = span_load(buf, dy_td, u, at, n);
				for (int64_t i = 0; i < n; i++)
					part[i] += dy[i];
			}
			real *restrict dw = arg_real(out, line, at);
			for (int64_t i = 0; i < n; i++)
				dw[i] += part[i];
		}
	}
}
static void embedding_dw(const tt_call *c)
{
	int64_t width = arg_width(&c->out[0]);
	tt_lines(c, width, columns_block(c, width), embedding_dw_part);
}

static void embedding_dw_exact_part(const tt_call *c, int64_t at, int64_t end)
{
	const tt_attr_vocab *attr = c->attr;
	const int32_t *ids = arg_i32(&c->in[0]);
	const tt_arg *dy_td = &c->in[1], *out = &c->out[0];
	int64_t n = end - at, tokens = arg_lines(dy_td), lines = arg_lines(out), first = attr ? attr->first : 0;
	real buf[SPAN];
	real_bits max = 0;
	for (int64_t v = 0; v < lines; v++)
		exact_line_clear(exact_line_at(out, v, at), n);
	for (int64_t t = 0; t < tokens; t++) {
		int64_t line = (int64_t)ids[t] - first;
		if (line < 0 || line >= lines)
			continue;
		const real *dy = span_load(buf, dy_td, t, at, n);
		max = TT_MAX(max, exact_max_bits(dy, n));
		exact_line_add_net(exact_line_at(out, line, at), dy, n);
	}
	for (int64_t v = 0; v < lines; v++)
		exact_line_finish(exact_line_at(out, v, at), n, 0);
	exact_check(c, exact_max_value(max), tokens);
}
static void embedding_dw_exact(const tt_call *c)
{
	int64_t width = arg_width(&c->out[0]);
	tt_lines(c, width, columns_block(c, width), embedding_dw_exact_part);
}

/* ---- state, ids, dy, w -> state + dW -----------------------------------------------------------------------------------------------------------
 * The same sums, id by id, so that none needs a place of its own: tokens are dealt by their id first, to scratch: begin[lines + 1],
 * tokens[T]. A line without tokens is state + 0, or 0 where the term is stored. */

typedef struct by_id { const int32_t *begin, *tokens; bool store; } by_id;

static void embedding_acc_run(const tt_call *c, lines_fn *part)
{
	const tt_attr_embedding_acc *attr = c->attr;
	const int32_t *ids = arg_i32(&c->in[1]);
	int64_t tokens = arg_lines(&c->in[2]), lines = arg_lines(&c->out[0]), width = arg_width(&c->out[0]);
	int32_t *begin = c->scratch, *order = begin + lines + 2;
	memset(begin, 0, (size_t)(lines + 2) * sizeof *begin);
	for (int64_t t = 0; t < tokens; t++) {
		int64_t line = (int64_t)ids[t] - attr->vocab.first;
		if (line >= 0 && line < lines)
			begin[line + 2]++;
	}
	for (int64_t v = 0; v < lines; v++)
		begin[v + 2] += begin[v + 1];
	for (int64_t t = 0; t < tokens; t++) { /* begin[v + 1] goes up to where v ends, which is where v + 1 begins */
		int64_t line = (int64_t)ids[t] - attr->vocab.first;
		if (line >= 0 && line < lines)
			order[begin[line + 1]++] = (int32_t)t;
	}
	tt_lines(c, width, columns_block(c, width), part);
}
static by_id by_id_of(const tt_call *c)
{
	const tt_attr_embedding_acc *attr = c->attr;
	const int32_t *begin = c->scratch;
	return (by_id){begin, begin + arg_lines(&c->out[0]) + 2, attr->first && c->env->first};
}

/* out = state + 0: a pass over what lies in place only looks for what it would change. */
static void plus_zero(real *out, const real *state, int64_t n)
{
	real_bits minus = real_to_bits((real)-0.0);
	bool any = out != state;
	for (int64_t i = 0; i < n; i++)
		any |= real_to_bits(state[i]) == minus;
	for (int64_t i = 0; any && i < n; i++)
		out[i] = state[i] + (real)0;
}

static void embedding_acc_part(const tt_call *c, int64_t at, int64_t end)
{
	const by_id by = by_id_of(c);
	int64_t n = end - at, lines = arg_lines(&c->out[0]);
	real buf[SPAN], part[SPAN], total[SPAN];
	for (int64_t v = 0; v < lines; v++) {
		const real *state = arg_real(&c->in[0], v, at);
		real *out = arg_real(&c->out[0], v, at);
		int64_t first = by.begin[v], last = by.begin[v + 1];
		if (first == last) {
			if (by.store)
				memset(out, 0, sizeof(real) * (size_t)n);
			else
				plus_zero(out, state, n);
			continue;
		}
		memset(total, 0, sizeof(real) * (size_t)n);
		for (int64_t k = first; k < last;) {
			int64_t block = by.tokens[k] / TOKEN_BLOCK;
			memset(part, 0, sizeof(real) * (size_t)n);
			for (; k < last && by.tokens[k] / TOKEN_BLOCK == block; k++) {
				const real *restrict dy = span_load(buf, &c->in[2], by.tokens[k], at, n);
				for (int64_t i = 0; i < n; i++)
					part[i] += dy[i];
			}
			for (int64_t i = 0; i < n; i++)
				total[i] += part[i];
		}
		INPLACE_LOOP
		for (int64_t i = 0; i < n; i++)
			out[i] = by.store ? total[i] : state[i] + total[i];
	}
}
static void embedding_dw_acc(const tt_call *c) { embedding_acc_run(c, embedding_acc_part); }

static void embedding_acc_exact_part(const tt_call *c, int64_t at, int64_t end)
{
	const by_id by = by_id_of(c);
	int64_t lines = arg_lines(&c->out[0]);
	real buf[PIECE];
	uint64_t sums[EXACT_LIMBS][PIECE];
	exact_line term;
	for (int j = 0; j < EXACT_LIMBS; j++)
		term.k[j] = sums[j];
	real_bits max = 0;
	for (int64_t v = 0; v < lines; v++)
		for (int64_t x = at, n; x < end; x += n) {
			n = TT_MIN((int64_t)PIECE, end - x);
			exact_line out = exact_line_at(&c->out[0], v, x);
			exact_line to = by.store ? out : term;
			exact_line_clear(to, n);
			for (int64_t k = by.begin[v]; k < by.begin[v + 1]; k++) {
				const real *dy = span_load(buf, &c->in[2], by.tokens[k], x, n);
				max = TT_MAX(max, exact_max_bits(dy, n));
				exact_line_add_net(to, dy, n);
			}
			exact_line_finish(to, n, 0);
			if (!by.store && !exact_line_sum(out, exact_line_at(&c->in[0], v, x), term, n))
				exact_raise(c);
		}
	exact_check(c, exact_max_value(max), arg_lines(&c->in[2]));
}
static void embedding_dw_acc_exact(const tt_call *c) { embedding_acc_run(c, embedding_acc_exact_part); }

const tt_kernel TT_KERNEL_TABLE[] = {
	{"embedding", embedding, TT_EXACT(embedding_exact)},
	{"embedding_dw", embedding_dw, TT_EXACT(embedding_dw_exact)},
	{"embedding_dw_acc", embedding_dw_acc, TT_EXACT(embedding_dw_acc_exact)},
	{0},
};
