/* Inside config/: values of TOML that are one word. */
#ifndef TT_CONFIG_TOML_SCALAR_H
#define TT_CONFIG_TOML_SCALAR_H

#include "config/toml.h"

/* What is wrong with a word: the message is `before`, the word, `after`. */
typedef struct tt_toml_complaint {
	const char *before, *after;
} tt_toml_complaint;

/* Sets kind and value of `v` from the word `s`; `scratch` has room for it. False with a complaint if it is no value. */
bool tt_toml_read_scalar(const char *s, char *scratch, tt_toml_node *v, tt_toml_complaint *c);

#endif
