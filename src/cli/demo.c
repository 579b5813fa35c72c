/* demo.c: `titan demo`: train on text, be killed in the middle of a save, resume; then say how many bits a byte of held-out files costs the
 * model, beside gzip -9 and xz -9. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/signals.h"
#include "train/train.h"

static tt_status spawn(const char *tool, int *to, int *from, pid_t *pid)
{
	int in[2], out[2];
	if (pipe2(in, O_CLOEXEC))
		TT_FAIL(TT_ERR_IO, "pipe: %s", strerror(errno));
	if (pipe2(out, O_CLOEXEC)) {
		close(in[0]), close(in[1]);
		TT_FAIL(TT_ERR_IO, "pipe: %s", strerror(errno));
	}
	*pid = fork();
	if (*pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execlp(tool, tool, "-9", "-c", (char *)NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	if (*pid < 0) {
		close(in[1]), close(out[0]);
		TT_FAIL(TT_ERR_IO, "fork: %s", strerror(errno));
	}
	*to = in[1];
	*from = out[0];
	return TT_OK;
}

/* Bytes of `text` after `tool -9`. A signal that asks for an end ends the tool. */
static tt_status compressed_size(const char *tool, const char *text, size_t n, int64_t *out)
{
	int to, from;
	pid_t pid;
	int64_t size = 0;
	size_t at = 0;
	TT_TRY(spawn(tool, &to, &from, &pid));
	fcntl(to, F_SETFL, O_NONBLOCK);
	for (char sink[65536];;) {
		struct pollfd p[] = { { .fd = from, .events = POLLIN }, { .fd = to, .events = POLLOUT } };
		enum { LOOK_MS = 200 };
		int n_ready = poll(p, to >= 0 ? 2 : 1, LOOK_MS);
		if (*tt_cli_stop())
			kill(pid, SIGKILL);
		if (n_ready < 0 && errno != EINTR)
			break;
		if (n_ready <= 0)
			continue;
		if (to >= 0 && p[1].revents) {
			ssize_t w = at < n ? write(to, text + at, n - at) : 0;
			if (w > 0)
				at += (size_t)w;
			if (at == n || (w < 0 && errno != EAGAIN)) {
				close(to);
				to = -1;
			}
		}
		if (p[0].revents) {
			ssize_t r = read(from, sink, sizeof sink);
			if (r <= 0)
				break;
			size += r;
		}
	}
	if (to >= 0)
		close(to);
	close(from);
	int status = 0;
	waitpid(pid, &status, 0);
	if (*tt_cli_stop())
		TT_FAIL(TT_ERR_STOP, "stopped by signal %d, in %s -9 of the held-out files", (int)*tt_cli_stop(), tool);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		TT_FAIL(TT_ERR_IO, "%s did not run (apt-get install %s)", tool, strcmp(tool, "xz") ? tool : "xz-utils");
	*out = size;
	return TT_OK;
}

static tt_status compare(tt_arena *a, const tt_config *cfg, const tt_run_summary *sum)
{
	tt_files files = { 0 };
	TT_TRY(tt_files_find(a, "validation.paths", cfg->validation.paths.items, cfg->validation.paths.n, cfg->data.exclude.items, cfg->data.exclude.n, &files));
	tt_buf text = { 0 };
	for (int64_t i = 0; i < files.n; i++) {
		char *s;
		size_t n;
		TT_TRY(tt_file_read(a, files.items[i].path, &s, &n));
		tt_buf_add(&text, s, n);
	}
	int64_t gzip = 0, xz = 0;
	tt_status st = compressed_size("gzip", text.s, text.n, &gzip);
	if (st == TT_OK)
		st = compressed_size("xz", text.s, text.n, &xz);
	double bytes = (double)text.n;
	tt_buf_fini(&text);
	TT_TRY(st);
	/* The first byte of a document is predicted by nothing: it costs the model 8 bits. */
	double model = sum->valid_bits + 8 * (double)(sum->valid_tokens - sum->valid_predicted);
	printf("\nbits per byte of %lld held-out files (%s, never trained on)\n", (long long)files.n, tt_scale_bytes((int64_t)bytes).s);
	printf("  titan, %-14s %7.3f   (%s if it were a compressor)\n", cfg->model.flavor, model / bytes, tt_scale_bytes((int64_t)(model / 8)).s);
	printf("  gzip -9, one stream   %7.3f   (%s)\n", 8 * (double)gzip / bytes, tt_scale_bytes(gzip).s);
	printf("  xz -9, one stream     %7.3f   (%s)\n", 8 * (double)xz / bytes, tt_scale_bytes(xz).s);
	return TT_OK;
}

/* ---- killed in the middle of a save --------------------------------------------------------------------------------------------------- */

/* Is a temporary folder with tensors in it there beside at least one complete checkpoint? */
static bool in_the_middle_of_a_save(const char *folder, char *name, size_t cap)
{
	bool complete = false, writing = false;
	DIR *d = opendir(folder);
	for (struct dirent *e; d && (e = readdir(d));) {
		if (!strncmp(e->d_name, "step-", 5))
			complete = true;
		if (strncmp(e->d_name, ".tmp-", 5))
			continue;
		char path[4096];
		struct stat st;
		snprintf(path, sizeof path, "%s/%s/model.safetensors", folder, e->d_name);
		if (!stat(path, &st) && st.st_size > 0) {
			snprintf(name, cap, "%s", e->d_name);
			writing = true;
		}
	}
	if (d)
		closedir(d);
	return complete && writing;
}

/* The child: it alone hears signals, from its parent, and goes with it. */
static _Noreturn void first_half(const tt_config *cfg, double parse_seconds, pid_t parent, const sigset_t *was)
{
	tt_run_summary sum;
	(void)setpgid(0, 0); /* a terminal's ^C would come twice */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent)
		_exit(1);
	sigprocmask(SIG_SETMASK, was, NULL);
	tt_status s = tt_cli_run(cfg, parse_seconds, false, &sum);
	if (s != TT_OK)
		fprintf(stderr, "titan: %s: %s\n", tt_status_name(s), tt_error_text());
	fflush(NULL);
	_exit(tt_cli_exit_code(s));
}

/* Until the child ends or is seen writing its second checkpoint, where it is killed; signals go to the child, whose last save is then left alone. */
static void watch(pid_t pid, const char *folder, const sigset_t *signals, bool *killed, int *status)
{
	char name[256];
	const struct timespec look = { 0, 500000 };
	bool told = false;
	while (waitpid(pid, status, WNOHANG) == 0) {
		if (!told && in_the_middle_of_a_save(folder, name, sizeof name)) {
			kill(pid, SIGKILL);
			waitpid(pid, status, 0);
			printf("\nkilled (SIGKILL) while it wrote %s/%s\n", folder, name);
			printf("what is there: the checkpoints before it, whole; the half-written folder is cleared by the next save. Starting again:\n\n");
			fflush(stdout);
			*killed = true;
			return;
		}
		int number = sigtimedwait(signals, NULL, &look);
		if (number > 0)
			told = kill(pid, number) == 0;
	}
}

/* Trains in a child until it is seen writing its second checkpoint, and kills it there. *killed false: it ended before. */
static tt_status train_and_kill(const tt_config *cfg, double parse_seconds, bool *killed)
{
	char folder[2048];
	sigset_t signals, was;
	int status = 0;
	snprintf(folder, sizeof folder, "%s/%s", cfg->job.dump_folder, cfg->checkpoint.folder);
	tt_cli_signals(&signals);
	sigprocmask(SIG_BLOCK, &signals, &was);
	pid_t self = getpid(), pid = fork();
	if (pid == 0)
		first_half(cfg, parse_seconds, self, &was);
	*killed = false;
	if (pid > 0)
		watch(pid, folder, &signals, killed, &status);
	if (pid > 0 && !*killed && WIFSIGNALED(status)) { /* asked twice: at once, as the child */
		signal(WTERMSIG(status), SIG_DFL);
		(void)raise(WTERMSIG(status));
	}
	sigprocmask(SIG_SETMASK, &was, NULL);
	if (pid < 0)
		TT_FAIL(TT_ERR_IO, "fork: %s", strerror(errno));
	if (*killed)
		return TT_OK;
	int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
	if (status) /* the child has said why */
		TT_FAIL(code == tt_cli_exit_code(TT_ERR_USAGE) ? TT_ERR_USAGE : code == tt_cli_exit_code(TT_ERR_STOP) ? TT_ERR_STOP : TT_ERR_IO,
			"the first half of the demo ended with status %d", code ? code : 128 + WTERMSIG(status));
	return TT_OK;
}

static tt_status demo(tt_arena *a, const tt_config *cfg, double t0)
{
	double parse = tt_now() - t0;
	tt_run_summary sum = { 0 };
	bool killed = false;
	struct stat st;
	const char *out = cfg->job.dump_folder;
	if (!stat(out, &st)) { /* never removed: it may be anybody's */
		char aside[2048];
		int n = 1;
		do
			snprintf(aside, sizeof aside, "%s.old-%d", out, n++);
		while (!stat(aside, &st));
		if (rename(out, aside))
			TT_FAIL(TT_ERR_IO, "%s is there already and cannot be moved aside: %s (job.dump_folder)", out, strerror(errno));
		printf("%s was there already: it is now %s\n", out, aside);
	}
	fflush(stdout);
	if (cfg->checkpoint.enable)
		TT_TRY(train_and_kill(cfg, parse, &killed));
	TT_TRY(tt_cli_run(cfg, parse, true, &sum));
	if (cfg->validation.paths.n && sum.valid_predicted)
		TT_TRY(compare(a, cfg, &sum));
	TT_TRY(tt_demo_mesh(a, cfg));
	if (cfg->checkpoint.enable)
		printf("\nthe model, which transformers opens as it is: %s/%s/step-%08lld\n", out, cfg->checkpoint.folder, (long long)sum.steps);
	printf("%severy step: %s/metrics.jsonl (titan plot %s draws it)\n", cfg->checkpoint.enable ? "" : "\n", out, out);
	printf("done in %.0f s. Next: titan --help; titan doctor; titan train configs/debug.toml\n", tt_now() - t0);
	return TT_OK;
}

tt_status tt_cmd_demo(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("cli");
	double t0 = tt_now();
	tt_config *cfg;
	signal(SIGPIPE, SIG_IGN);
	tt_status s = tt_cli_config(a, argc, argv, "configs/demo.toml", &cfg);
	if (s == TT_OK) {
		tt_config_log_warnings(cfg);
		s = demo(a, cfg, t0);
	}
	tt_arena_destroy(a);
	TT_TRY(s);
	return TT_OK;
}
