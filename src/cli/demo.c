/* demo.c: `titan demo`: train, then say how the model compares with gzip and xz on the same held-out files. */
#include <stdio.h>

#include "cli/cli.h"
#include "train/train.h"

tt_status tt_cmd_demo(int argc, const char *const *argv)
{
	(void)argc, (void)argv;
	const char *args[] = { "configs/demo.toml" };
	return tt_cmd_train(1, args);
}
