/* The version of titan, as programs and files carry it. */
#ifndef TT_BASE_VERSION_H
#define TT_BASE_VERSION_H

#define TT_VERSION "0.1.0"

/* What compiled it; clang's own text names it. */
#ifdef __clang__
#define TT_COMPILER __VERSION__
#else
#define TT_COMPILER "gcc " __VERSION__
#endif

#endif
