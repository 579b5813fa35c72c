/* bench_race.c: timing: runners in turn, on a machine that is watched. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/version.h"
#include "cli/bench.h"

/* ---- load --------------------------------------------------------------------------------------------------------------------------------- */

static double seconds_of(const struct timeval *t) { return (double)t->tv_sec + 1e-6 * (double)t->tv_usec; }

static double own_seconds(int who)
{
	struct rusage u;
	return getrusage(who, &u) == 0 ? seconds_of(&u.ru_utime) + seconds_of(&u.ru_stime) : 0;
}

/* Sum over the lines cpuN of /proc/stat that this process may run on of all but idle and iowait: user, nice, system, irq, softirq, steal. What
 * a hypervisor steals is lost to us as well. */
static double busy_seconds(void)
{
	cpu_set_t allowed;
	FILE *f = fopen("/proc/stat", "re");
	double ticks = 0;
	char line[512];
	if (!f || sched_getaffinity(0, sizeof allowed, &allowed)) {
		if (f)
			fclose(f);
		return 0;
	}
	while (fgets(line, sizeof line, f)) {
		int cpu;
		double v[8];
		if (sscanf(line, "cpu%d %lf %lf %lf %lf %lf %lf %lf %lf", &cpu, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) == 9 && cpu >= 0 &&
		    cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed))
			ticks += v[0] + v[1] + v[2] + v[5] + v[6] + v[7];
	}
	fclose(f);
	return ticks / (double)sysconf(_SC_CLK_TCK);
}

tt_bench_load tt_bench_load_now(void)
{
	return (tt_bench_load){ .wall = tt_now(), .busy = busy_seconds(), .own = own_seconds(RUSAGE_SELF) + own_seconds(RUSAGE_CHILDREN) };
}

double tt_bench_load_others(const tt_bench_load *from, const tt_bench_load *to)
{
	double wall = to->wall - from->wall, others = (to->busy - from->busy) - (to->own - from->own);
	return wall > 0 && others > 0 ? others / wall : 0;
}

/* ---- races -------------------------------------------------------------------------------------------------------------------------------- */

tt_race tt_race_of(int rounds) { return (tt_race){ .rounds = rounds, .retries = rounds, .slice = 0.08, .pause = 0.006, .quiet = 0.15 }; }

static void nap(double seconds)
{
	struct timespec t = { .tv_nsec = (long)(seconds * 1e9) };
	if (seconds > 0)
		nanosleep(&t, NULL);
}

/* Seconds of one run, mean over a turn. */
static double turn(const tt_race *race, tt_runner *r, double pause)
{
	double (*clock)(void) = race->clock ? race->clock : tt_now;
	nap(pause);
	double t0 = clock();
	for (int64_t i = 0; i < r->runs; i++)
		r->run(r->ctx);
	return (clock() - t0) / (double)r->runs;
}

void tt_race_run(tt_race *r, tt_runner *runners, int n)
{
	tt_bench_load (*load)(void) = r->load ? r->load : tt_bench_load_now;
	for (int i = 0; i < n; i++) { /* a cold run, then one that says how many fit into a turn */
		runners[i].runs = 1;
		runners[i].seconds = 0;
		(void)turn(r, &runners[i], 0);
		double once = turn(r, &runners[i], 0);
		runners[i].runs = once > 0 ? (int64_t)(r->slice / once) + 1 : 1;
	}
	r->noisy = false;
	r->others = 0;
	int thrown = 0;
	for (int round = 0; round < r->rounds;) {
		double seconds[32];
		TT_ASSERT(n <= TT_COUNT(seconds), "%d runners", n);
		tt_bench_load from = load();
		for (int i = 0; i < n; i++)
			seconds[i] = turn(r, &runners[i], r->pause);
		tt_bench_load to = load();
		double others = tt_bench_load_others(&from, &to);
		if (others > r->quiet && thrown < r->retries) {
			thrown++;
			continue;
		}
		for (int i = 0; i < n; i++)
			runners[i].seconds = round ? TT_MIN(runners[i].seconds, seconds[i]) : seconds[i];
		r->others = TT_MAX(r->others, others);
		r->noisy |= others > r->quiet;
		round++;
	}
}

void tt_race_again(tt_race *r, tt_runner *runners, int n)
{
	double seconds[32];
	TT_ASSERT(n <= TT_COUNT(seconds), "%d runners", n);
	for (int i = 0; i < n; i++)
		seconds[i] = runners[i].seconds;
	tt_race_run(r, runners, n);
	for (int i = 0; i < n; i++)
		runners[i].seconds = TT_MIN(runners[i].seconds, seconds[i]);
}

static int less(const void *x, const void *y)
{
	double a = *(const double *)x, b = *(const double *)y;
	return (a > b) - (a < b);
}

double tt_bench_median(double *v, int64_t n)
{
	qsort(v, (size_t)n, sizeof *v, less);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* ---- peaks -------------------------------------------------------------------------------------------------------------------------------- */

tt_status tt_bench_peaks_init(int threads, tt_isa isa, tt_bench_peaks *out)
{
	tt_bench_peaks p = { .isa = isa };
	tt_peak_source_init(&p.source);
	TT_TRY(tt_pool_create(threads, 20, &p.pool));
	*out = p;
	return TT_OK;
}

void tt_bench_peaks_look(tt_bench_peaks *p, tt_dtype dt, bool all, double seconds)
{
	double *best = &p->of[dt == TT_BF16][all];
	double rate = p->source.measure(p->source.ctx, p->pool, tt_figure_of(p->isa, dt), all ? tt_pool_threads(p->pool) : 1, seconds);
	*best = TT_MAX(*best, rate);
}

double tt_bench_peaks_get(const tt_bench_peaks *p, tt_dtype dt, bool all) { return p->of[dt == TT_BF16][all]; }

json_t *tt_bench_peaks_json(const tt_bench_peaks *p)
{
	json_t *o = json_object();
	for (int bf16 = 0; bf16 < 2; bf16++)
		for (int all = 0; all < 2; all++)
			if (p->of[bf16][all] > 0) {
				char key[32];
				snprintf(key, sizeof key, "%s_%s", bf16 ? "bf16" : "f32", all ? "all" : "one");
				json_object_set_new(o, key, json_real(p->of[bf16][all] / 1e9));
			}
	return o;
}

void tt_bench_peaks_fini(tt_bench_peaks *p) { tt_pool_destroy(p->pool); }

tt_status tt_bench_rows(const char *bench, tt_status (*races)(const tt_bench_options *, tt_bench_peaks *, json_t *rows), const tt_bench_options *o, json_t **out)
{
	tt_bench_peaks peaks;
	int threads = o->threads ? o->threads : tt_machine_threads();
	TT_TRY(tt_bench_peaks_init(threads, o->isa, &peaks));
	json_t *rows = json_array();
	tt_status s = races(o, &peaks, rows);
	if (s == TT_OK)
		*out = json_pack("{s:s, s:s, s:i, s:o, s:o}", "bench", bench, "peer", "titan.c " TT_VERSION, "threads", threads, "peak_gflops",
				 tt_bench_peaks_json(&peaks), "rows", rows);
	else
		json_decref(rows);
	tt_bench_peaks_fini(&peaks);
	return s;
}
