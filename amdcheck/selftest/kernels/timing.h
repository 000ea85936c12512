/* The clock that every timed loop uses. */
#ifndef AMDCHECK_TIMING_H
#define AMDCHECK_TIMING_H

#include <time.h>

static inline double amdcheck_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
