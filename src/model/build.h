/* For model files only: the start of a builder. */
#ifndef TT_MODEL_BUILD_H
#define TT_MODEL_BUILD_H

#include "model/model.h"

tt_builder *tt_builder_new(tt_arena *a, const tt_model_options *o);

#endif
