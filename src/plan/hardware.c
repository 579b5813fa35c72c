/* hardware.c: tables of machines. Peaks are the makers', dense; what is reached of them is assumed. */
#include "plan/plan.h"

#include "base/machine.h"

/* Sources: the makers' data sheets, figures of bf16 without sparsity, links halved where the sheet adds both directions; memory as the driver
 * reports it. The network is one 400 Gb/s card for each of 8 GPUs of a node, as HGX and OAM servers have. Shares and latencies are assumptions:
 * what well tuned training reaches, of products alone. */
#define GPU(key, text, from, tflops, tflops32, gib, gbs, link_gbs)                                                     \
	{ .name = key, .title = text, .source = from, .bf16 = (tflops) * 1e12, .f32 = (tflops32) * 1e12, .memory = (gib) * (double)TT_GIB,             \
	  .bandwidth = (gbs) * 1e9, .node = 8, .link = (link_gbs) * 1e9, .network = 50e9, .latency = 20e-6, .issue = 3e-6, .product_share = 0.7,        \
	  .memory_share = 0.8, .link_share = 0.75 }
const tt_hardware tt_hardware_tables[] = {
	GPU("h100", "NVIDIA H100 SXM", "NVIDIA H100 data sheet: 989 TFLOP/s, 80 GB, 3.35 TB/s, NVLink 900 GB/s both ways", 989, 67, 79.6, 3350, 450),
	GPU("h200", "NVIDIA H200 SXM", "NVIDIA H200 data sheet: 989 TFLOP/s, 141 GB, 4.8 TB/s, NVLink 900 GB/s both ways", 989, 67, 140.4, 4800, 450),
	GPU("b200", "NVIDIA B200 SXM", "NVIDIA HGX B200 data sheet: 2.25 PFLOP/s, 180 GB, 8 TB/s, NVLink 1.8 TB/s both ways", 2250, 75, 179, 8000, 900),
	GPU("mi300x", "AMD Instinct MI300X", "AMD MI300X data sheet: 1307 TFLOP/s, 192 GB, 5.3 TB/s, 7 links of 128 GB/s both ways", 1307, 163.4, 191.9, 5300, 448),
	{ 0 },
};

tt_status tt_hardware_find(const char *name, tt_hardware *out)
{
	const char *names[16];
	int n = 0;
	for (const tt_hardware *h = tt_hardware_tables; h->name; h++) {
		if (!strcmp(h->name, name)) {
			*out = *h;
			return TT_OK;
		}
		names[n++] = h->name;
	}
	const char *near = tt_nearest(name, names, n);
	TT_FAIL(TT_ERR_USAGE, "hardware.table: no table is called \"%s\"%s%s (there are: this, h100, h200, b200, mi300x)", name, near ? "; nearest: " : "", near ? near : "");
}

tt_status tt_hardware_this(const tt_peak_source *s, tt_isa isa, int64_t ranks, tt_hardware *out)
{
	tt_peak_source own = { 0 };
	if (!s) {
		tt_peak_source_init(&own);
		s = &own;
	}
	tt_peaks p;
	int threads = tt_machine_threads();
	(void)tt_peak_load(s, threads, &p);
	p.threads = threads;
	tt_figure f32 = tt_figure_of(isa, TT_F32), bf16 = tt_figure_of(isa, TT_BF16);
	if (p.of[f32].all <= 0 || p.of[bf16].all <= 0 || p.of[TT_PEAK_TRIAD].all <= 0) {
		tt_pool *pool = NULL;
		TT_TRY(tt_pool_create(threads, 20, &pool));
		tt_peak_measure(s, pool, isa, true, &p);
		tt_pool_destroy(pool);
		(void)tt_peak_store(s, &p);
	}
	double k = (double)ranks;
	/* Ranks are threads that share cores, memory and its bandwidth; they read each other's memory where it lies. */
	*out = (tt_hardware){
		.name = "this", .title = "this machine", .source = "peaks measured here (titan doctor)", .bf16 = p.of[bf16].all / k, .f32 = p.of[f32].all / k,
		.memory = (double)tt_memory_limit() / k, .bandwidth = p.of[TT_PEAK_TRIAD].all / k, .link = p.of[TT_PEAK_TRIAD].all / k,
		.network = p.of[TT_PEAK_TRIAD].all / k, .latency = 20e-6, .issue = 1e-6, .product_share = 0.75, .memory_share = 0.8, .link_share = 0.8,
	};
	return TT_OK;
}
