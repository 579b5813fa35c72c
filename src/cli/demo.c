/* demo.c: `titan demo`: train on text, then say how many bits a byte of held-out files costs the model, beside gzip -9 and xz -9. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"
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

/* Bytes of `text` after `tool -9`. */
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
		if (poll(p, to >= 0 ? 2 : 1, -1) < 0 && errno != EINTR)
			break;
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
	int64_t gzip, xz;
	tt_status st = compressed_size("gzip", text.s, text.n, &gzip);
	if (st == TT_OK)
		st = compressed_size("xz", text.s, text.n, &xz);
	double bytes = (double)text.n;
	tt_buf_fini(&text);
	TT_TRY(st);
	/* The first byte of a document is predicted by nothing: it costs the model 8 bits. */
	double model = sum->valid_bits + 8 * (double)(sum->valid_tokens - sum->valid_predicted);
	printf("\nbits per byte of %lld held-out files (%.0f bytes, never trained on)\n", (long long)files.n, bytes);
	printf("  titan, %-14s %7.3f   (%lld bytes if it were a compressor)\n", cfg->model.flavor, model / bytes, (long long)(model / 8));
	printf("  gzip -9, one stream   %7.3f   (%lld bytes)\n", 8 * (double)gzip / bytes, (long long)gzip);
	printf("  xz -9, one stream     %7.3f   (%lld bytes)\n", 8 * (double)xz / bytes, (long long)xz);
	return TT_OK;
}

tt_status tt_cmd_demo(int argc, const char *const *argv)
{
	tt_arena *a = tt_arena_create("cli");
	double t0 = tt_now();
	tt_config *cfg;
	tt_run_summary sum = { 0 };
	signal(SIGPIPE, SIG_IGN);
	tt_status s = tt_cli_config(a, argc, argv, "configs/demo.toml", &cfg);
	if (s == TT_OK) {
		tt_config_log_warnings(cfg);
		s = tt_cli_run(cfg, tt_now() - t0, true, &sum);
	}
	if (s == TT_OK && cfg->validation.paths.n && sum.valid_predicted)
		s = compare(a, cfg, &sum);
	if (s == TT_OK)
		printf("\ndone in %.0f s. Next: titan train configs/debug.toml; titan config --doc; titan ops.\n", tt_now() - t0);
	tt_arena_destroy(a);
	TT_TRY(s);
	return TT_OK;
}
