/* train.c: a training run from C. Trains a config, evaluates it, scores a text with the model.
 *
 *	cc train.c -o train $(pkg-config --cflags --libs titan)
 *	./train configs/debug.toml --training.steps=5 --validation.fraction=0.2
 */
#include <stdio.h>
#include <string.h>

#include <titan.h>

/* Log lines of the library: here, behind a mark of our own. */
static void on_log(void *ctx, titan_log_level level, const char *line)
{
	fprintf((FILE *)ctx, "%s %s\n", level >= TITAN_LOG_WARN ? "titan!" : "titan:", line);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: %s CONFIG [--section.key=value ...]\n", argv[0]);
		return 2;
	}
	titan_log_to(on_log, stderr, TITAN_LOG_INFO);

	/* Opening builds the model, opens the data, and resumes if the run was saved before. Outputs are written on success only. */
	titan_session *session = NULL;
	if (titan_session_open(argv[1], argc - 2, (const char *const *)(argv + 2), &session) != TITAN_OK) {
		fprintf(stderr, "%s\n", titan_error());
		return 1;
	}
	printf("titan %s, %lld parameters, %lld of %lld steps done\n", titan_version(), (long long)titan_params(session),
	       (long long)titan_steps_done(session), (long long)titan_steps_total(session));

	/* One call is one optimizer step. The size says which version of the struct this program was compiled with. */
	titan_status status;
	titan_step_info info;
	info.struct_size = sizeof info;
	while ((status = titan_step(session, &info)) == TITAN_OK)
		printf("step %lld  loss %.4f  grad norm %.3f  %.0f tokens/s\n", (long long)info.step, info.loss, info.grad_norm,
		       (double)info.tokens / info.seconds);

	/* TITAN_END is how a run ends well; all else is a failure, and the text is this thread's. */
	if (status != TITAN_END) {
		fprintf(stderr, "%s: %s\n", titan_status_name(status), titan_error());
		titan_session_close(session);
		return 1;
	}

	/* On text that is held out (validation.paths or validation.fraction), if there is any. */
	double loss;
	int64_t tokens;
	if (titan_evaluate(session, &loss, &tokens) == TITAN_OK)
		printf("held out: loss %.4f over %lld tokens\n", loss, (long long)tokens);
	else
		printf("not evaluated: %s\n", titan_error());

	/* How likely a text is. The tokenizer of this config is `bytes`: an id is a byte. */
	static const char text[] = "#include <stdio.h>\n";
	int32_t ids[sizeof text - 1];
	double logprob;
	for (size_t i = 0; i < sizeof text - 1; i++)
		ids[i] = (unsigned char)text[i];
	if (titan_score(session, (int64_t)(sizeof text - 1), ids, &logprob) == TITAN_OK)
		printf("log p(\"#include <stdio.h>\") = %.3f nats\n", logprob);

	/* The last save is the program's: a session never saves because it is closed. */
	if (titan_save(session) == TITAN_OK)
		printf("saved\n");
	else
		printf("not saved: %s\n", titan_error());
	return titan_session_close(session) == TITAN_OK ? 0 : 1;
}
