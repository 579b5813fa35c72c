/* step.c: what a trainer does: cells of a step, sums over ranks, the update, what is not finite, validation. */
#include <stdio.h>
#include <stdlib.h>

#include "train/trainer.h"

enum { EMPTY_STEPS = 8 }; /* without a valid token, from the start: the run is ended */

/* ---- cells ------------------------------------------------------------------------------------------------------------------------------ */

static tt_status write_real(tt_trainer *t, const char *name, const double *v, int n)
{
	float f[8];
	for (int i = 0; i < n; i++)
		f[i] = (float)v[i];
	return tt_exec_write(t->exec, name, 0, t->o.exec.f64 ? (const void *)v : (const void *)f, n);
}

static tt_status read_real(tt_trainer *t, const char *name, double *out)
{
	float f;
	if (t->o.exec.f64)
		return tt_exec_read(t->exec, name, 0, out, 1);
	TT_TRY(tt_exec_read(t->exec, name, 0, &f, 1));
	*out = f;
	return TT_OK;
}

/* What this rank's programs read: all of it, or under context parallelism its share; where heads are swapped attention wants the place of all tokens. */
static tt_status write_batch(tt_trainer *t, const tt_batch *b)
{
	int64_t T = b->T, placed = T;
	const int32_t *ids = b->ids, *labels = b->labels, *positions = b->positions, *seq_ids = b->seq_ids, *lines = b->lines;
	if (t->share) {
		tt_share *s = t->share;
		tt_batch_order(b, t->o.data.context_length, t->o.model.sliding_window, t->o.mesh.cp_balance, t->dealer, t->order);
		tt_share_fill(b, t->order, t->coord[TT_CP], t->o.mesh.size[TT_CP], s);
		int64_t first = t->o.mesh.cp_method == TT_CP_HEAD_SWAP ? 0 : s->first; /* of the tokens that are placed */
		T = s->T;
		placed = t->o.mesh.cp_method == TT_CP_HEAD_SWAP ? b->T : T;
		ids = s->ids + s->first;
		labels = s->labels + s->first;
		positions = s->positions + first;
		seq_ids = s->seq_ids + first;
		lines = s->lines;
	}
	TT_TRY(tt_exec_write(t->exec, "ids", 0, ids, T));
	TT_TRY(tt_exec_write(t->exec, "labels", 0, labels, T));
	TT_TRY(tt_exec_write(t->exec, "positions", 0, positions, placed));
	TT_TRY(tt_exec_write(t->exec, "seq_ids", 0, seq_ids, placed));
	TT_TRY(tt_exec_write(t->exec, "seq_table", 0, b->seq_table, b->nsequences + 1));
	return tt_exec_write(t->exec, "lines", 0, lines, b->T);
}

/* (query, key) pairs of a sequence. */
static double attended(int64_t tokens, int64_t window)
{
	double n = (double)tokens, w = window > 0 && window < tokens ? (double)window : n;
	return w * (w + 1) / 2 + (n - w) * w;
}

/* An acc scalar of EVAL as a double. */
static tt_status read_acc(tt_trainer *t, const char *name, double *out)
{
	if (t->o.exec.f64 || t->o.exec.numerics == TT_FAST)
		return read_real(t, name, out);
	int64_t limb[3];
	TT_TRY(tt_exec_read(t->exec, name, 0, limb, 1));
	*out = ((double)limb[2] * 0x1p-106 + (double)limb[1] * 0x1p-66) + (double)limb[0] * 0x1p-26;
	return TT_OK;
}

/* Adds the token losses of the microbatch just run to those of their rows, in order of tokens, in double. `first`: its first row. */
static tt_status add_rows(tt_trainer *t, const tt_batch *b, int64_t first)
{
	int64_t context = t->o.data.context_length, at0 = t->share ? t->share->first : 0;
	int64_t T = t->share ? t->share->T : b->T;
	double *loss = t->rows, *valid = loss + t->step_rows->nrows;
	for (int i = 0; i < t->o.loss_chunks; i++) {
		int64_t at = t->nll[i].dim[0].base, n = TT_MIN(t->nll[i].dim[0].n, T - at);
		if (n > 0)
			TT_TRY(tt_tensor_read(t->exec, &t->nll[i], 0, t->o.exec.f64 ? (void *)(t->nll_doubles + at) : (void *)(t->nll_values + at), n));
	}
	for (int64_t k = 0; k < T; k++) {
		int64_t token = t->share ? t->order[at0 + k] : k, row = first + token / context;
		if (b->labels[token] == TT_IGNORE)
			continue;
		loss[row] += t->o.exec.f64 ? t->nll_doubles[k] : (double)t->nll_values[k];
		valid[row]++;
	}
	return TT_OK;
}

static tt_status gather_counts(void *ctx)
{
	tt_trainer *t = ctx;
	TT_TRY(tt_comm_all_gather(t->sharers, "losses of rows", t->rows, row_bytes(t->step_rows->nrows), t->all_rows));
	return TT_OK;
}

/* What the loop counts of this rank's tokens goes to all ranks that share the step, beside the update. */
static void share_counts(tt_trainer *t)
{
	int axes = 0;
	while (t->sharers && t->axes.group[TT_COMM_WANTED][axes] != t->sharers)
		axes++;
	if (t->sharers)
		tt_exec_beside(t->exec, axes, gather_counts, t);
}

/* The worst mean loss of a row. */
static tt_status worst_row(tt_trainer *t, tt_step_report *r)
{
	int64_t n = t->step_rows->nrows, ranks = 1;
	const double *all = t->rows;
	if (t->sharers) {
		ranks = tt_comm_group_size(t->sharers);
		TT_TRY(tt_exec_beside_end(t->exec));
		all = t->all_rows;
	}
	for (int64_t row = 0; row < n; row++) {
		double loss = 0, valid = 0;
		for (int64_t i = 0; i < ranks; i++) {
			loss += all[2 * n * i + row];
			valid += all[2 * n * i + n + row];
		}
		if (valid > 0 && !(loss / valid <= r->loss_max))
			r->loss_max = loss / valid;
	}
	return TT_OK;
}

/* Forward and backward of every microbatch of step `index` (from 0), then REDUCE; worst_row must follow. Zero valid tokens: nothing is run. */
static tt_status accumulate_step(tt_trainer *t, int64_t index, tt_step_report *r)
{
	double t0 = tt_now();
	tt_step *s = t->step_rows;
	TT_TRY(tt_data_step(t->data, index, s));
	r->tokens = s->T;
	r->valid = s->nvalid;
	r->loss_max = __builtin_nan("");
	r->data_seconds = tt_now() - t0;
	if (!s->nvalid)
		return TT_OK;
	double inv = 1 / (double)s->nvalid;
	TT_TRY(write_real(t, "inv_valid", &inv, 1));
	memset(t->rows, 0, sizeof *t->rows * 2 * (size_t)s->nrows);
	for (int64_t k = 0; k < s->nsequences; k++)
		r->pairs += attended(s->seq_table[k + 1] - s->seq_table[k], t->o.model.sliding_window);
	tt_cells deal = tt_cells_of(s->nrows, t->rows_per_mb, data_rank(t), data_ranks(t));
	for (int64_t cell_at = 0; cell_at < deal.n; cell_at++) {
		int64_t row = tt_cells_row(&deal, cell_at);
		t0 = tt_now();
		tt_batch_fill(s, row, tt_cells_row(&deal, cell_at + 1), t->batch);
		TT_TRY(write_batch(t, t->batch));
		t->cell_first = row * t->o.data.context_length;
		TT_TRY(tt_trainer_tamper_at(t, TT_BEFORE_CELL));
		tt_cell cell = { .T = t->batch->T, .nseqs = t->batch->nsequences, .first = cell_at == 0, .step = index + 1,
				 .last = cell_at == deal.n - 1 && !t->o.tamper }; /* who tampers may look at sums before they are taken */
		double t1 = tt_now();
		TT_TRY(tt_exec_run(t->exec, TT_SEG_F, &cell));
		double t2 = tt_now();
		TT_TRY(tt_exec_run(t->exec, TT_SEG_B, &cell));
		double t3 = tt_now();
		TT_TRY(add_rows(t, t->batch, row));
		tt_trace_span(t->trace, "data", t0, t1);
		tt_trace_span(t->trace, "forward", t1, t2);
		tt_trace_span(t->trace, "backward", t2, t3);
		r->data_seconds += t1 - t0;
		r->forward_seconds += t2 - t1;
		r->backward_seconds += t3 - t2;
	}
	TT_TRY(tt_trainer_tamper_at(t, TT_BEFORE_REDUCE));
	t0 = tt_now();
	tt_cell cell = { .step = index + 1 };
	TT_TRY(tt_exec_run(t->exec, TT_SEG_REDUCE, &cell)); /* its sums may be under way: nothing is exchanged before it */
	share_counts(t);
	TT_TRY(read_real(t, "loss", &r->loss));
	r->loss *= inv;
	TT_TRY(read_real(t, "grad_norm", &r->grad_norm));
	r->optim_seconds = tt_now() - t0;
	tt_trace_span(t->trace, "reduce", t0, tt_now());
	return TT_OK;
}

/* Whether a state of `n` numbers holds one that is not finite. */
static bool holds_nonfinite(tt_trainer *t, const char *name, int64_t n)
{
	enum { BLOCK = 4096 };
	double d[BLOCK];
	const float *f = (const float *)(const void *)d;
	for (int64_t at = 0; at < n; at += BLOCK) {
		int64_t c = TT_MIN((int64_t)BLOCK, n - at);
		if (tt_exec_read(t->exec, name, at, d, c) != TT_OK)
			return false;
		for (int64_t k = 0; k < c; k++)
			if (!__builtin_isfinite(t->o.exec.f64 ? d[k] : (double)f[k]))
				return true;
	}
	return false;
}

/* Index of the first parameter, or of the first whose gradient, is not finite on this rank; their number if all are. */
static int64_t first_nonfinite(tt_trainer *t, bool grads)
{
	const tt_builder *m = t->model;
	for (int64_t i = 0; i < m->nparams; i++) {
		tt_slot s;
		char name[320];
		snprintf(name, sizeof name, "%s%s", grads ? "grad." : "", m->params[i].name);
		if (tt_exec_slot(t->exec, name, &s) == TT_OK && holds_nonfinite(t, name, s.count))
			return i;
	}
	return m->nparams;
}

/* The least over all ranks, and the lowest rank that has it: they say the same. */
static tt_status least_of_all(tt_trainer *t, int64_t *x, int *rank)
{
	*rank = 0;
	if (!t->all)
		return TT_OK;
	int n = tt_comm_group_size(t->all);
	int64_t *all = calloc((size_t)n, sizeof *all);
	TT_ASSERT(all, "out of memory");
	tt_status s = tt_comm_all_gather(t->all, "what is not finite", x, sizeof *x, all);
	for (int i = 0; i < n && !s; i++)
		if (i == 0 || all[i] < *x) {
			*x = all[i];
			*rank = i;
		}
	free(all);
	return s;
}

/* Why a step cannot be learnt from: a slow scan, on the way to an error or a skipped step. A parameter that is itself not finite spoils the
 * gradients of all, so parameters are looked at first. `beyond`: what `exact`, whose gradients are integers, has said; else NULL. */
static tt_status name_nonfinite(tt_trainer *t, const char *beyond, char *out, size_t cap)
{
	const tt_builder *m = t->model;
	for (int grads = 0; grads < 2; grads++) {
		int rank;
		int64_t i = grads && t->o.exec.numerics != TT_FAST ? m->nparams : first_nonfinite(t, grads);
		TT_TRY(least_of_all(t, &i, &rank));
		const char *where = i < m->nparams && t->all ? tt_arena_printf(t->arena, " (rank %d)", rank) : "";
		if (i < m->nparams) {
			snprintf(out, cap, grads ? "first in the gradient of %s%s" : "parameter %s is itself not finite%s", m->params[i].name, where);
			return TT_OK;
		}
		if (beyond) {
			snprintf(out, cap, "%s", beyond);
			return TT_OK;
		}
	}
	snprintf(out, cap, "in no single gradient: the loss or the norm itself overflows");
	return TT_OK;
}

static double power(double x, int64_t n)
{
	double r = 1;
	for (; n; n >>= 1, x *= x)
		if (n & 1)
			r *= x;
	return r;
}

/* What exchanges have cost so far, by axes. */
typedef struct comm_counts { tt_comm_count count[1 << TT_MESH_AXES]; tt_exchange_seconds seconds[1 << TT_MESH_AXES]; } comm_counts;

static void count_comm(const tt_trainer *t, comm_counts *c)
{
	for (int i = 0; i < 1 << TT_MESH_AXES; i++)
		if (t->axes.group[TT_COMM_WANTED][i]) {
			c->count[i] = tt_comm_axes_count(&t->axes, (uint32_t)i);
			c->seconds[i] = tt_exec_exchange_seconds(t->exec, i);
		}
}

/* Since `from`. What was not on a lane was waited for. */
static void report_comm(const tt_trainer *t, const comm_counts *from, tt_step_report *r)
{
	comm_counts now;
	count_comm(t, &now);
	for (int i = 0; i < 1 << TT_MESH_AXES && r->ncomm < TT_STEP_COMMS; i++) {
		if (!t->axes.group[TT_COMM_WANTED][i] || now.count[i].calls == from->count[i].calls)
			continue;
		const tt_comm_count *a = &from->count[i], *b = &now.count[i];
		double all = b->wait_s + b->use_s - a->wait_s - a->use_s, hidden = now.seconds[i].hidden - from->seconds[i].hidden;
		r->comm[r->ncomm++] = (tt_step_comm){ tt_comm_group_name(t->axes.group[TT_COMM_WANTED][i]), b->calls - a->calls, b->bytes - a->bytes,
						      TT_MAX(all - hidden, 0.0), hidden, now.seconds[i].hideable_calls - from->seconds[i].hideable_calls,
						      now.seconds[i].hideable_bytes - from->seconds[i].hideable_bytes };
	}
}

tt_status tt_trainer_step(tt_trainer *t, tt_step_report *out)
{
	if (leads(t))
		TT_TRY(tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_STEP }));
	tt_step_report r = { .step = t->step + 1 };
	comm_counts before;
	count_comm(t, &before);
	double t0 = tt_now();
	TT_TRY(tt_trainer_tamper_at(t, TT_BEFORE_STEP));
	if (t->trace)
		t->trace->on = tt_traces_due(&t->o.trace, t->step);
	const tt_optim_options *o = &t->o.optim;
	r.lr = o->lr * tt_schedule_factor(&t->o.schedule, t->step);
	if (t->hashes)
		TT_TRY(tt_hashes_begin_step(t->hashes, r.step));
	char beyond[512] = "", why[512];
	tt_status ran = accumulate_step(t, t->step, &r);
	if (ran == TT_ERR_NUMERIC && !many_ranks(t)) { /* `exact` met operands that it cannot sum: there is no loss and no gradient */
		snprintf(beyond, sizeof beyond, "%s", tt_error_text());
		r.loss = r.grad_norm = __builtin_nan("");
	} else {
		TT_TRY(ran);
	}
	if (r.valid)
		t->empty = -1;
	if (!r.valid) {
		if (t->empty >= 0 && ++t->empty == EMPTY_STEPS)
			TT_FAIL(TT_ERR_USAGE, "none of the first %d steps, %lld to %lld, has a valid token: nothing can be learnt from these data (data.paths, or the labels)",
				EMPTY_STEPS, (long long)(r.step - EMPTY_STEPS + 1), (long long)r.step);
		if (speaks(t))
			tt_log(TT_LOG_WARN, "step %lld has no valid token: nothing is learnt from it", (long long)r.step);
		r.skipped = true;
	} else if (!__builtin_isfinite(r.grad_norm) || !__builtin_isfinite(r.loss)) {
		if (ran == TT_OK)
			TT_TRY(worst_row(t, &r));
		TT_TRY(name_nonfinite(t, beyond[0] ? beyond : NULL, why, sizeof why));
		if (!t->o.skip_nonfinite)
			TT_FAIL(TT_ERR_NUMERIC, "step %lld: loss %g, gradient norm %g: %s (training.nonfinite = \"skip\" goes on)", (long long)r.step, tt_plain_nan(r.loss),
				tt_plain_nan(r.grad_norm), why);
		if (++t->skips > t->o.nonfinite_max_skips)
			TT_FAIL(TT_ERR_NUMERIC, "step %lld: skip %lld in a row, of a loss or gradient that is not finite: %s (training.nonfinite_max_skips)",
				(long long)r.step, (long long)t->skips, why);
		if (speaks(t))
			tt_log(TT_LOG_WARN, "step %lld skipped: loss %g, gradient norm %g: %s", (long long)r.step, tt_plain_nan(r.loss), tt_plain_nan(r.grad_norm), why);
		r.skipped = true;
	} else {
		t->skips = 0;
		double t1 = tt_now();
		t->updates++;
		double hyper[4] = { r.lr, 1 - power(o->beta1, t->updates), 1 - power(o->beta2, t->updates), 0 };
		TT_TRY(write_real(t, "hyper", hyper, 4));
		TT_TRY(tt_trainer_tamper_at(t, TT_BEFORE_UPDATE));
		bool saving = t->before_update && t->before_update(t->before_ctx);
		if (t->o.mesh.led) { /* a save that rank 0 has begun reads from all */
			TT_TRY(worst_row(t, &r));
			TT_TRY(tt_team_before_update(&t->team, saving));
		}
		tt_cell cell = { .step = t->updates, .last = !t->o.tamper };
		TT_TRY(tt_exec_run(t->exec, TT_SEG_OPT, &cell));
		if (tt_exec_has(t->exec, TT_SEG_PREP))
			TT_TRY(tt_exec_run(t->exec, TT_SEG_PREP, &cell));
		if (!t->o.mesh.led)
			TT_TRY(worst_row(t, &r));
		r.optim_seconds += tt_now() - t1;
		tt_trace_span(t->trace, "update", t1, tt_now());
	}
	TT_TRY(tt_trainer_record_state(t, &r));
	if (t->o.mesh.led) /* what rank 0 reads after the step, as a save does, is of this step on every rank */
		TT_TRY(tt_comm_barrier(t->team.all, "after the step"));
	t->step++;
	r.seconds = tt_now() - t0;
	report_comm(t, &before, &r);
	if (t->trace && t->trace->on) {
		tt_trace_span(t->trace, "step", t0, tt_now());
		t->trace->on = false; /* validation is not of a step */
		if (t->step % t->o.trace.freq == 0)
			TT_TRY(tt_traces_write(t->arena, t->exec, &t->o.trace, t->step, t->o.mesh.comm ? tt_comm_rank(t->o.mesh.comm) : 0, t->trace));
	}
	if (t->o.after_step)
		TT_TRY(t->o.after_step(t->o.after_step_ctx, t, &r));
	*out = r;
	return TT_OK;
}

tt_status tt_trainer_gradients(tt_trainer *t, int64_t step, double *loss)
{
	tt_step_report r = { .step = step + 1 };
	TT_TRY(accumulate_step(t, step, &r));
	if (r.valid)
		TT_TRY(worst_row(t, &r));
	*loss = r.loss;
	return TT_OK;
}

tt_status tt_trainer_forward(tt_trainer *t, const tt_batch *b, double *loss_sum)
{
	TT_TRY(write_batch(t, b));
	tt_cell cell = { .T = b->T, .nseqs = b->nsequences, .first = true };
	TT_TRY(tt_exec_run(t->exec, TT_SEG_EVAL, &cell));
	return read_acc(t, "eval_loss_sum", loss_sum);
}

/* The sum of one number of each rank that has tokens of its own. */
static tt_status sum_over_sharers(tt_trainer *t, double *x)
{
	if (!t->sharers)
		return TT_OK;
	TT_TRY(tt_comm_all_gather(t->sharers, "loss of a validation", x, sizeof *x, t->all_rows));
	*x = 0;
	for (int i = 0; i < tt_comm_group_size(t->sharers); i++)
		*x += t->all_rows[i];
	return TT_OK;
}

tt_status tt_trainer_follow(tt_trainer *t)
{
	for (;;) {
		tt_team_order o;
		tt_status s = TT_OK;
		tt_step_report r;
		double loss;
		int64_t valid;
		int64_t states;
		const tt_slot *state = tt_exec_states(t->exec, &states);
		TT_TRY(tt_team_hear(&t->team, &o));
		switch ((tt_team_what)o.what) {
		case TT_TEAM_END:
			return TT_OK;
		case TT_TEAM_STEP:
			s = tt_trainer_step(t, &r);
			break;
		case TT_TEAM_VALIDATE:
			s = tt_trainer_validate(t, o.a, &loss, &valid);
			break;
		case TT_TEAM_RESUME:
			s = tt_trainer_resume(t, o.a, o.b, o.c);
			break;
		case TT_TEAM_SQUARES:
			s = tt_trainer_square_sum(t, state[o.a].name, o.b, &loss);
			break;
		case TT_TEAM_SAVE:
			TT_ASSERT(t->save, "a save is asked of rank %d, which has no part in it", tt_trainer_rank(t));
			s = t->save(t->save_ctx, o.a, o.b, o.c);
			break;
		case TT_TEAM_READ:
		case TT_TEAM_WRITE:
			TT_ASSERT(o.a >= 0 && o.a < states, "state %lld of %lld", (long long)o.a, (long long)states);
			s = tt_team_copy(&t->team, t, o.what == TT_TEAM_READ, state[o.a].name, o.b, o.c, NULL, NULL);
			break;
		}
		if (s != TT_ERR_STOP) /* the text has ended: rank 0 sees it too, and what it does then is its own affair */
			TT_TRY(s);
	}
}

tt_status tt_trainer_validate(tt_trainer *t, int64_t max_rows, double *loss_sum, int64_t *valid)
{
	if (leads(t))
		TT_TRY(tt_team_tell(&t->team, (tt_team_order){ .what = TT_TEAM_VALIDATE, .a = max_rows }));
	double sum = 0;
	int64_t count = 0, rows = tt_data_valid_rows(t->data), ranks = data_ranks(t), me = data_rank(t);
	if (max_rows)
		rows = TT_MIN(rows, max_rows);
	/* Data ranks take turns at batches of rows; all run as many cells. */
	for (int64_t r = 0; r < rows; r += ranks * t->valid_rows->cap_rows) {
		if (t->stop && *t->stop && !t->o.mesh.led)
			TT_FAIL(TT_ERR_STOP, "signal %d in a validation", (int)*t->stop);
		for (int64_t i = 1; i <= ranks; i++) { /* its own last: the batch is a view of the rows */
			int64_t first = r + (me + i) % ranks * t->valid_rows->cap_rows, n = TT_MIN(t->valid_rows->cap_rows, rows - first);
			if (n > 0)
				TT_TRY(tt_data_valid(t->data, first, t->valid_rows));
			for (int64_t k = 0; k < n; k++)
				count += t->valid_rows->row_valid[k];
			tt_batch_fill(t->valid_rows, 0, TT_MAX(n, (int64_t)0), t->batch);
		}
		double one;
		TT_TRY(tt_trainer_forward(t, t->batch, &one));
		sum += one;
	}
	TT_TRY(sum_over_sharers(t, &sum));
	*loss_sum = sum;
	*valid = count;
	return TT_OK;
}
