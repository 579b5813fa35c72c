/* fuse.c: several nodes become one that reads and writes less, by a table of patterns.
 *
 * A pattern is text. Its parts are nodes in the order of the flow, `op(in, ..)>out, ..`; a name is one value wherever it stands. The node that
 * takes their place is written the same way. A part's output that the made node does not have must have no reader outside of the match;
 * one that it has is kept for whoever reads it. A made node computes every `round` of its parts in registers: no bit of what is kept changes.
 *
 * A match is taken if
 *   - all parts are of one segment and one chunk of the loss;
 *   - there is a place in the order, that of one of its parts, after all that it reads is made and before any of its outputs is read;
 *   - no part loses a faster kernel by it: if the kernel set has one for a part, it must have one for the made node.
 * Nodes are tried in ascending order, patterns in the order of the table; a node belongs to one match at most.
 *
 * Only `fast`: in `exact` acc is three limbs, and a run that proves bits should have as little between it and the model as can be.
 */
#include "pass/pass.h"

#include <ctype.h>

#include "ops/ops.h"

enum { MAX_PARTS = 12, MAX_IO = 8, MAX_NAMES = 32, MADE_ATTR = 64 };

typedef struct pattern {
	const char *name;
	const char *parts;
	const char *made;
	const char *doc;
	int attr;          /* the part whose attribute struct the made op takes over; -1: it has none */
	/* Looks at the attributes of the parts: false refuses them. May write attributes of its own to `made` (MADE_ATTR bytes). NULL: any will do. */
	bool (*when)(const void *const *attr, void *made);
	bool holds;        /* reads longer what its parts let go one by one: taken where all of that is read later anyway */
} pattern;

static bool both_formats(const void *const *attr, void *made)
{
	const tt_attr_pack *fwd = attr[0], *dx = attr[1];
	*(tt_attr_dtype *)made = (tt_attr_dtype){ fwd->dtype };
	return fwd->format == TT_PACK_FWD && dx->format == TT_PACK_DX && fwd->dtype == dx->dtype;
}

static bool rounded_dx(const void *const *attr, void *made)
{
	*(tt_attr_linear_dx *)made = (tt_attr_linear_dx){ ((const tt_attr_dtype *)attr[2])->dtype, true };
	return true;
}

/* One chain over all of the contraction: what the ops that begin with products have. */
static bool one_chain(const tt_attr_linear *a) { return !a->segments.n && !a->rounded; }

static bool same_chains(const void *const *attr, void *made)
{
	const tt_attr_linear *gate = attr[0], *up = attr[1];
	*(tt_attr_dtype *)made = (tt_attr_dtype){ gate->dtype };
	return one_chain(gate) && one_chain(up) && gate->dtype == up->dtype;
}

static bool chain_of_heads(const void *const *attr, void *made)
{
	const tt_attr_linear *y = attr[0];
	*(tt_attr_linear_rope *)made = (tt_attr_linear_rope){ *(const tt_attr_rope *)attr[1], y->dtype };
	return one_chain(y);
}

static bool table_sum(const void *const *attr, void *made)
{
	*(tt_attr_embedding_acc *)made = (tt_attr_embedding_acc){ *(const tt_attr_vocab *)attr[0], ((const tt_attr_accumulate *)attr[1])->first };
	return true;
}

static bool turned(const void *const *attr, void *made)
{
	*(tt_attr_norm *)made = *(const tt_attr_norm *)attr[0];
	return !((const tt_attr_rope *)attr[1])->inverse;
}

static const pattern PATTERNS[] = {
	{ "linear_silu_mul", "linear(x,wg)>gate linear(x,wu)>up silu_mul(gate,up)>act", "linear_silu_mul(x,wg,wu)>gate,up,act",
	  "gate and up are multiplied by blocks of lines, right after their products", -1, same_chains, true },
	{ "linear_rope", "linear(x,w)>y rope(y,table)>r", "linear_rope(x,w,table)>r",
	  "queries and keys are rotated by blocks of lines, where the product leaves them", -1, chain_of_heads, false },
	{ "dw_accumulate", "linear_dw(dy,x)>dw accumulate(g,dw)>sum", "linear_dw_acc(g,dy,x)>sum",
	  "a weight gradient is added to its accumulator tile by tile", 1, NULL, false },
	{ "embedding_accumulate", "embedding_dw(ids,dy,w)>dw accumulate(g,dw)>sum", "embedding_dw_acc(g,ids,dy,w)>sum",
	  "the embedding's gradient is added to its accumulator line by line: no table between them", -1, table_sum, false },
	{ "dx_sum_round", "linear_dx(dy,w)>dx add(s,dx)>t round(t)>y", "linear_dx_add(dy,w,s)>y",
	  "an input gradient is added to another product's and rounded in the tile", -1, rounded_dx, false },
	{ "dx_sum", "linear_dx(dy,w)>dx add(s,dx)>t", "linear_dx_add(dy,w,s)>t", "an input gradient is added to another product's in the tile", 0, NULL, false },
	{ "residual_norm", "add(a,b)>h rms_norm(h,w)>y,r", "add_rms_norm(a,b,w)>h,y,r", "the residual stream is normed while a line is in cache", 1, NULL, false },
	{ "norm_rope", "rms_norm(x,w)>y,r rope(y,table)>z", "rms_norm_rope(x,w,table)>z,r", "normed queries and keys are rotated while a line is in cache", -1,
	  turned, false },
	{ "norm_backward", "rms_norm_dx(dy,x,w,r)>d rms_norm_dw(dy,x,r)>dw add(d,res)>sum", "rms_norm_bwd(dy,x,w,r,res)>sum,dw",
	  "one read of a norm's input and gradient, and the residual's gradient added", -1, NULL, false },
	{ "loss_backward",
	  "row_max(x)>m sum_exp(x,m)>s8 round(s8)>s pick(x,labels)>at round(at)>target lse(m,s)>l nll(x,labels,l,target)>nll "
	  "broadcast(dy,nll)>dn nll_dx(x,labels,l,dn)>dx",
	  "cross_entropy_bwd(x,labels,dy)>dx,nll", "losses and the logits' gradient by line, while the line is in cache", 8, NULL, false },
	{ "loss", "row_max(x)>m sum_exp(x,m)>s8 round(s8)>s pick(x,labels)>at round(at)>target lse(m,s)>l nll(x,labels,l,target)>nll",
	  "cross_entropy(x,labels)>nll", "losses by line, while the line is in cache (validation)", 6, NULL, false },
	{ "pack_pair", "pack(w)>fwd pack(w)>dx", "pack_pair(w)>fwd,dx", "both formats of a weight from one read", -1, both_formats, false },
	{ "round_square_sum", "round(acc)>g square_sum(g)>s", "round_square_sum(acc)>s", "the gradient norm reads accumulators", -1, NULL, false },
	{ "round_adamw", "round(acc)>g adamw(p,m,v,g,c,h)>p1,m1,v1", "round_adamw(p,m,v,acc,c,h)>p1,m1,v1", "AdamW reads accumulators", 1, NULL, false },
	{ "round_sgd", "round(acc)>g sgd(p,m,g,c,h)>p1,m1", "round_sgd(p,m,acc,c,h)>p1,m1", "SGD reads accumulators", 1, NULL, false },
};

/* ---- patterns as data ---------------------------------------------------------------------------------------------------------------- */

typedef struct part {
	const tt_op *op;
	int nin, nout;
	int in[MAX_IO], out[MAX_IO]; /* names */
} part;

typedef struct rule {
	const pattern *p;
	int nparts, nnames;
	part part[MAX_PARTS], made;
	const char *name[MAX_NAMES];
	int len[MAX_NAMES];
} rule;

static int word(const char *s)
{
	int n = 0;
	while (isalnum((unsigned char)s[n]) || s[n] == '_')
		n++;
	return n;
}

static int name_of(rule *r, const char *s, int len)
{
	for (int i = 0; i < r->nnames; i++)
		if (r->len[i] == len && !memcmp(r->name[i], s, (size_t)len))
			return i;
	TT_ASSERT(r->nnames < MAX_NAMES && len > 0, "pattern %s: no name at \"%s\"", r->p->name, s);
	r->name[r->nnames] = s;
	r->len[r->nnames] = len;
	return r->nnames++;
}

/* `op(a,b)>c,d` at *s. */
static part parse_part(rule *r, const char **s)
{
	part p = { 0 };
	int n = word(*s);
	char op[64] = "";
	TT_ASSERT(n > 0 && n < (int)sizeof op && (*s)[n] == '(', "pattern %s: no op at \"%s\"", r->p->name, *s);
	memcpy(op, *s, (size_t)n);
	p.op = tt_op_find(op);
	TT_ASSERT(p.op, "pattern %s: there is no op %s", r->p->name, op);
	*s += n;
	for (int *list = p.in, *count = &p.nin; **s && **s != ' '; *s += n) {
		if (**s == '>')
			list = p.out, count = &p.nout;
		++*s; /* ( , or > */
		n = word(*s);
		TT_ASSERT(*count < MAX_IO, "pattern %s: more than %d operands", r->p->name, MAX_IO);
		list[(*count)++] = name_of(r, *s, n);
		if ((*s)[n] == ')')
			n++;
	}
	return p;
}

static rule parse(const pattern *p)
{
	rule r = { .p = p };
	for (const char *s = p->parts; *s;) {
		TT_ASSERT(r.nparts < MAX_PARTS, "pattern %s: more than %d parts", p->name, MAX_PARTS);
		r.part[r.nparts++] = parse_part(&r, &s);
		s += strspn(s, " ");
	}
	const char *s = p->made;
	r.made = parse_part(&r, &s);
	return r;
}

/* ---- matching ------------------------------------------------------------------------------------------------------------------------ */

typedef struct match {
	const rule *r;
	tt_v value[MAX_NAMES];   /* by name, 0: not yet bound */
	int64_t node[MAX_PARTS]; /* by part */
	int64_t at;              /* the node whose place it takes */
	_Alignas(16) uint8_t attr[MADE_ATTR];
} match;

typedef struct fuser {
	const tt_graph *g;
	const tt_fuse_options *o;
	int64_t *first, *reader; /* readers of value v: reader[first[v] .. first[v+1]) */
	bool *kept;              /* [nvalues] an output, a root, or a state's next version */
	match **taken;           /* [nnodes] the match a node is part of */
} fuser;

static void find_readers(fuser *f, tt_arena *a)
{
	const tt_graph *g = f->g;
	f->first = TT_NEWN(a, int64_t, g->nvalues + 2);
	int64_t n = 0;
	for (int64_t i = 0; i < g->nnodes; i++)
		for (int k = 0; k < g->nodes[i].nin; k++, n++)
			f->first[g->nodes[i].in[k] + 2]++;
	for (tt_v v = 0; v < g->nvalues; v++)
		f->first[v + 2] += f->first[v + 1];
	f->reader = TT_NEWN(a, int64_t, n + 1);
	for (int64_t i = 0; i < g->nnodes; i++)
		for (int k = 0; k < g->nodes[i].nin; k++)
			f->reader[f->first[g->nodes[i].in[k] + 1]++] = i;
	f->kept = TT_NEWN(a, bool, g->nvalues);
	for (int64_t i = 0; i < g->nstates; i++)
		f->kept[g->states[i].next] = true;
	for (int64_t i = 0; i < g->noutputs; i++)
		f->kept[g->outputs[i]] = true;
	for (int64_t i = 0; i < g->nroots; i++)
		f->kept[g->roots[i].value] = true;
}

static bool bind(match *m, const int *names, const tt_v *values, int n)
{
	for (int i = 0; i < n; i++) {
		tt_v *v = &m->value[names[i]];
		if (!values[i] || (*v && *v != values[i]))
			return false;
		*v = values[i];
	}
	return true;
}

static bool match_rest(const fuser *f, match *m, int k);

/* Node `index` as part k, then the parts after it. */
static bool match_part(const fuser *f, match *m, int k, int64_t index)
{
	const tt_node *n = &f->g->nodes[index];
	const part *p = &m->r->part[k];
	if (n->op != p->op || n->nin != p->nin || n->nout != p->nout || f->taken[index])
		return false;
	for (int i = 0; i < k; i++)
		if (m->node[i] == index)
			return false;
	if (k > 0 && (n->seg != f->g->nodes[m->node[0]].seg || n->group != f->g->nodes[m->node[0]].group))
		return false;
	match next = *m;
	next.node[k] = index;
	if (!bind(&next, p->in, n->in, p->nin) || !bind(&next, p->out, n->out, p->nout) || !match_rest(f, &next, k + 1))
		return false;
	*m = next;
	return true;
}

/* What is left is reached from values already bound: a part that makes one of them, or reads one. */
static bool match_rest(const fuser *f, match *m, int k)
{
	if (k == m->r->nparts) {
		const void *attr[MAX_PARTS];
		for (int i = 0; i < k; i++)
			attr[i] = f->g->nodes[m->node[i]].attr;
		return !m->r->p->when || m->r->p->when(attr, m->attr);
	}
	const part *p = &m->r->part[k];
	for (int i = 0; i < p->nout; i++) {
		tt_v v = m->value[p->out[i]];
		if (v)
			return f->g->values[v].def >= 0 && match_part(f, m, k, f->g->values[v].def);
	}
	for (int i = 0; i < p->nin; i++) {
		tt_v v = m->value[p->in[i]];
		for (int64_t j = v ? f->first[v] : 0; v && j < f->first[v + 1]; j++)
			if (match_part(f, m, k, f->reader[j]))
				return true;
		if (v)
			return false;
	}
	TT_ASSERT(false, "pattern %s: part %d has no value of the parts before it", m->r->p->name, k);
}

static bool is_part(const match *m, int64_t index)
{
	for (int i = 0; i < m->r->nparts; i++)
		if (m->node[i] == index)
			return true;
	return false;
}

static bool is_made(const match *m, int name)
{
	for (int i = 0; i < m->r->made.nout; i++)
		if (m->r->made.out[i] == name)
			return true;
	return false;
}

/* Where a node stands in the new graph, in places of the old one. */
static int64_t place(const fuser *f, int64_t index) { return f->taken[index] ? f->taken[index]->at : index; }

/* Inner values have no other reader; what is read is made before `at`, what is made is read after it. */
static bool fits_at(const fuser *f, const match *m, int64_t at)
{
	for (int i = 0; i < m->r->made.nin; i++) {
		int32_t def = f->g->values[m->value[m->r->made.in[i]]].def;
		if (def >= 0 && place(f, def) >= at)
			return false;
	}
	for (int i = 0; i < m->r->nparts; i++)
		for (int k = 0; k < m->r->part[i].nout; k++) {
			int name = m->r->part[i].out[k];
			tt_v v = m->value[name];
			if (!is_made(m, name) && f->kept[v])
				return false;
			for (int64_t j = f->first[v]; j < f->first[v + 1]; j++)
				if (!is_part(m, f->reader[j]) && (!is_made(m, name) || place(f, f->reader[j]) <= at))
					return false;
		}
	return true;
}

/* What the made node reads is read after the match too, or lies there all the time. */
static bool outlive(const fuser *f, const match *m)
{
	int64_t last = 0;
	for (int i = 0; i < m->r->nparts; i++)
		last = TT_MAX(last, m->node[i]);
	for (int i = 0; i < m->r->made.nin; i++) {
		tt_v v = m->value[m->r->made.in[i]];
		bool later = f->g->values[v].kind != TT_TEMP || f->kept[v];
		for (int64_t j = f->first[v]; j < f->first[v + 1]; j++)
			later |= f->reader[j] > last;
		if (!later)
			return false;
	}
	return true;
}

static bool find_place(const fuser *f, match *m)
{
	int64_t best = INT64_MAX;
	for (int i = 0; i < m->r->nparts; i++)
		if (m->node[i] < best && fits_at(f, m, m->node[i]))
			best = m->node[i];
	m->at = best;
	return best < INT64_MAX;
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------------------- */

static bool has_faster(const fuser *f, const tt_op *op, const void *attr, int nin, const tt_v *in, int nout, const tt_v *out)
{
	const tt_value *vin[MAX_IO], *vout[MAX_IO];
	for (int i = 0; i < nin; i++)
		vin[i] = &f->g->values[in[i]];
	for (int i = 0; i < nout; i++)
		vout[i] = &f->g->values[out[i]];
	tt_kernel_case c = { .op = op->name, .attr = attr, .nin = nin, .nout = nout, .in = vin, .out = vout, .threads = f->o->threads };
	return tt_override_lying(&c, f->o->isa) != NULL;
}

/* The node that the match makes, in ids of the old graph. `ids` [2*MAX_IO] holds its operands. */
static tt_node made_node(const fuser *f, const match *m, tt_v *ids)
{
	const part *p = &m->r->made;
	const tt_node *at = &f->g->nodes[m->at];
	for (int i = 0; i < p->nin; i++)
		ids[i] = m->value[p->in[i]];
	for (int i = 0; i < p->nout; i++)
		ids[MAX_IO + i] = m->value[p->out[i]];
	int from = m->r->p->attr;
	return (tt_node){ .op = p->op, .attr = from >= 0 ? f->g->nodes[m->node[from]].attr : p->op->attr_size ? m->attr : NULL, .scope = at->scope,
			  .seg = at->seg, .group = at->group, .nin = p->nin, .nout = p->nout, .in = ids, .out = ids + MAX_IO };
}

static bool keeps_kernels(const fuser *f, const match *m)
{
	if (f->o->kernels_ref)
		return true;
	tt_v ids[2 * MAX_IO];
	tt_node made = made_node(f, m, ids);
	bool faster = false, plain = true;
	for (int i = 0; i < m->r->nparts; i++) {
		const tt_node *n = &f->g->nodes[m->node[i]];
		faster |= has_faster(f, n->op, n->attr, n->nin, n->in, n->nout, n->out);
	}
	for (int i = 0; i < made.nin; i++)
		plain &= f->g->values[made.in[i]].format == TT_PLAIN;
	return (!faster && plain) || has_faster(f, made.op, made.attr, made.nin, made.in, made.nout, made.out);
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------------------ */

const char *tt_fuse_pattern(int i, const char **doc)
{
	if (i >= TT_COUNT(PATTERNS))
		return NULL;
	if (doc)
		*doc = PATTERNS[i].doc;
	return PATTERNS[i].name;
}

tt_status tt_passes_off(tt_arena *a, const char *const *words, int n, const char *const **off, int *noff, bool *overlap_off)
{
	const char **names = NULL, *known[TT_COUNT(PATTERNS) + 2] = { "-fuse" };
	int64_t count = 0, cap = 0;
	known[TT_COUNT(PATTERNS) + 1] = "-overlap";
	*overlap_off = false;
	for (int i = 0; i < TT_COUNT(PATTERNS); i++)
		known[i + 1] = tt_arena_printf(a, "-fuse.%s", PATTERNS[i].name);
	for (int i = 0; i < n; i++) {
		bool found = !strcmp(words[i], "-overlap");
		*overlap_off |= found;
		for (int k = 0; k < TT_COUNT(PATTERNS); k++)
			if (!strcmp(words[i], "-fuse") || !strcmp(words[i], known[k + 1])) {
				TT_PUSH(a, names, count, cap, PATTERNS[k].name);
				found = true;
			}
		const char *near = tt_nearest(words[i], known, TT_COUNT(known));
		if (!found)
			TT_FAIL(TT_ERR_USAGE, "debug.passes: \"%s\" switches nothing off: -overlap, -fuse, or -fuse.PATTERN for one (%s%s)", words[i],
				near ? "nearest: " : "docs/passes.md lists them", near ? near : "");
	}
	*off = names;
	*noff = (int)count;
	return TT_OK;
}

static bool is_off(const tt_fuse_options *o, const char *name)
{
	for (int i = 0; i < o->noff; i++)
		if (!strcmp(o->off[i], name))
			return true;
	return false;
}

tt_status tt_pass_fuse(const tt_graph *g, const tt_fuse_options *o, tt_arena *a, tt_graph **out)
{
	fuser f = { .g = g, .o = o, .taken = TT_NEWN(a, match *, g->nnodes) };
	rule *rules = TT_NEWN(a, rule, TT_COUNT(PATTERNS));
	int nrules = 0;
	for (int i = 0; i < TT_COUNT(PATTERNS); i++)
		if (!is_off(o, PATTERNS[i].name))
			rules[nrules++] = parse(&PATTERNS[i]);
	find_readers(&f, a);
	for (int64_t i = 0; i < g->nnodes; i++)
		for (int k = 0; k < nrules && !f.taken[i]; k++) {
			match m = { .r = &rules[k] };
			if (!match_part(&f, &m, 0, i) || !find_place(&f, &m) || (rules[k].p->holds && !outlive(&f, &m)) || !keeps_kernels(&f, &m))
				continue;
			match *keep = TT_NEW(a, match);
			*keep = m;
			for (int p = 0; p < rules[k].nparts; p++)
				f.taken[m.node[p]] = keep;
		}
	tt_copy c = tt_copy_begin(g, a);
	for (int64_t i = 0; i < g->nnodes; i++) {
		if (!f.taken[i]) {
			tt_copy_node(&c, &g->nodes[i]);
		} else if (f.taken[i]->at == i) {
			tt_v ids[2 * MAX_IO];
			tt_node made = made_node(&f, f.taken[i], ids);
			tt_copy_node(&c, &made);
		}
	}
	tt_copy_end(&c);
	TT_TRY(tt_graph_verify(c.to, "fuse"));
	*out = c.to;
	return TT_OK;
}
