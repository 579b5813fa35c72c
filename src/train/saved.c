/* saved.c: between the program's states and a checkpoint's tensors. */
#include <stdio.h>

#include "train/internal.h"
#include "train/team.h"

/* Parameters and the optimizer's states; what is derived from them is made anew. */
static bool is_saved(const tt_slot *x) { return x->region == TT_REGION_OPTIM || (x->region == TT_REGION_PARAM && x->source < 0); }

int64_t tt_trainer_checkpoint_bytes(tt_trainer *t)
{
	const tt_graph *g = tt_trainer_typed(t);
	int64_t n, bytes = 0;
	const tt_slot *states = tt_exec_states(tt_trainer_exec(t), &n);
	for (int64_t i = 0; i < n; i++)
		if (is_saved(&states[i]))
			bytes += tt_value_count(tt_value_get(g, tt_value_find(g, states[i].name))) * (states[i].dtype == TT_F64 ? 8 : 4);
	return bytes;
}

tt_status tt_saved_new(tt_arena *a, tt_trainer *t, tt_saved **out)
{
	int64_t n;
	const tt_slot *states = tt_exec_states(tt_trainer_exec(t), &n);
	tt_saved *s = TT_NEW(a, tt_saved);
	s->trainer = t;
	s->tensors = TT_NEWN(a, tt_ckpt_tensor, n);
	s->value = TT_NEWN(a, const tt_value *, n);
	for (int64_t i = 0; i < n; i++) {
		const tt_slot *x = &states[i];
		if (!is_saved(x))
			continue;
		tt_ckpt_tensor c = { .name = x->name, .optim = x->region == TT_REGION_OPTIM, .dtype = x->dtype == TT_F64 ? TT_ST_F64 : TT_ST_F32, .ndim = x->ndim };
		int imported = tt_trainer_imported(t, x->name);
		c.imported = imported >= 0 ? (tt_st_dtype)imported : c.dtype;
		const tt_value *whole = tt_value_get(tt_trainer_typed(t), tt_value_find(tt_trainer_typed(t), x->name));
		for (int d = 0; d < x->ndim; d++)
			c.dim[d] = whole->dim[d].n;
		s->value[s->n] = whole;
		s->tensors[s->n++] = c;
	}
	*out = s;
	return TT_OK;
}

static const char head[] = "lm_head.weight", embed[] = "model.embed_tokens.weight";

/* A tied model has no place for a head. Files of tied models often have one, a copy of the embedding; another one would be lost in silence. */
static tt_status check_tied(const tt_st *st)
{
	enum { BLOCK = 4096 };
	const tt_st_tensor *h = tt_st_find(st, head), *e = tt_st_find(st, embed);
	if (!h || !e)
		return TT_OK;
	bool same = h->count == e->count && h->dtype != e->dtype;
	if (h->dtype == e->dtype)
		same = h->bytes == e->bytes && !memcmp(h->p, e->p, (size_t)h->bytes);
	for (int64_t at = 0; same && h->dtype != e->dtype && at < h->count; at += BLOCK) {
		float x[BLOCK], y[BLOCK];
		int64_t n = TT_MIN(h->count - at, (int64_t)BLOCK);
		TT_TRY(tt_st_read_f32(h, at, n, x));
		TT_TRY(tt_st_read_f32(e, at, n, y));
		same = !memcmp(x, y, sizeof *x * (size_t)n);
	}
	if (!same)
		TT_FAIL(TT_ERR_USAGE, "%s: %s has other values than %s, and model.tie_word_embeddings = true has one tensor for both: %s would be dropped (set it to false, or "
				      "leave the key to the weights' config.json, model.hf_config)", tt_st_path(st), head, embed, head);
	return TT_OK;
}

tt_status tt_weights_check(const tt_builder *model, const tt_llama_config *c, const tt_st *st)
{
	for (int64_t i = 0; i < model->nparams; i++) {
		const tt_value *v = tt_value_get(model->g, model->params[i].state);
		const tt_st_tensor *x;
		int64_t dims[TT_MAX_DIMS];
		for (int d = 0; d < v->ndim; d++)
			dims[d] = v->dim[d].n;
		TT_TRY(tt_st_get(st, model->params[i].name, &x));
		TT_TRY(tt_st_expect(x, v->ndim, dims));
	}
	/* What the file has beyond that would be lost in silence: another model than this config says. */
	const char *unused = NULL;
	int64_t nunused = 0;
	for (int64_t i = 0; i < tt_st_count(st); i++) {
		const char *name = tt_st_at(st, i)->name;
		if (tt_value_find(model->g, name) || tt_pattern_match("*.rotary_emb.inv_freq", name) || (c->tie_word_embeddings && !strcmp(name, head)))
			continue;
		unused = unused ? unused : name;
		nunused++;
	}
	if (nunused)
		TT_FAIL(TT_ERR_USAGE, "%s has %lld tensors that this model does not use, the first is %s: is it another model? (model.hf_config names its "
				      "config.json; model.num_hidden_layers, model.attention_bias, model.mlp_bias)", tt_st_path(st), (long long)nunused, unused);
	return c->tie_word_embeddings ? check_tied(st) : TT_OK;
}

tt_status tt_saved_read(void *ctx, int64_t i, int64_t at, int64_t n, void *dst)
{
	tt_saved *s = ctx;
	return tt_trainer_read(s->trainer, s->tensors[i].name, at, dst, n);
}

tt_status tt_saved_write(void *ctx, int64_t i, int64_t at, int64_t n, const void *src)
{
	tt_saved *s = ctx;
	return tt_trainer_write(s->trainer, s->tensors[i].name, at, src, n);
}

static int64_t before(void *ctx, int rank, int to, int64_t i, int64_t at)
{
	const tt_saved *s = ctx;
	return tt_team_before(s->trainer, rank, to, s->value[i], at);
}

static int64_t run(void *ctx, int rank, int to, int64_t i, int64_t at, int64_t end, int64_t *n)
{
	const tt_saved *s = ctx;
	return tt_team_run(s->trainer, rank, to, s->value[i], at, end, n);
}

static tt_status pack(void *ctx, int64_t i, int64_t at, int64_t n, void *dst)
{
	const tt_saved *s = ctx;
	return tt_team_pack(s->trainer, s->tensors[i].name, at, n, dst);
}

tt_status tt_saved_share(tt_saved *s, tt_comm *c)
{
	if (!c || tt_comm_sees_memory(c) || tt_comm_size(c) == 1)
		return TT_OK;
	s->ranks = (tt_ckpt_ranks){ .comm = c, .before = before, .run = run, .pack = pack };
	return tt_comm_group_all_beside(c, "writers", &s->ranks.group);
}
