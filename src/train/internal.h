/* What the files of train/ share. */
#ifndef TT_TRAIN_INTERNAL_H
#define TT_TRAIN_INTERNAL_H

#include "ckpt/ckpt.h"
#include "train/train.h"

/* The tensors of a checkpoint, bound to the program's states. */
typedef struct tt_saved {
	tt_exec *exec;
	tt_slot *slots;
	tt_ckpt_tensor *tensors;
	int64_t n;
} tt_saved;
tt_status tt_saved_new(tt_arena *a, tt_trainer *t, tt_saved **out) TT_CHECKED;
tt_ckpt_read_fn tt_saved_read;   /* ctx: the tt_saved */
tt_ckpt_write_fn tt_saved_write;

/* Sum of squares of a parameter, or of its accumulated gradient, in double. */
double tt_state_square_sum(tt_trainer *t, const char *param, bool grad);

#endif
