/* The version of titan, as programs and files carry it. */
#ifndef TT_BASE_VERSION_H
#define TT_BASE_VERSION_H

#define TT_VERSION "0.1.0"

#endif
