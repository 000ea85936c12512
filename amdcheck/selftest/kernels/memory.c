/* Memory: how long a load takes, whether two cores fight over a line, whether every bit holds, and where pages lie.
 * Plain C: it serves every architecture. */
#define _GNU_SOURCE
#include "amdcheck_kernels.h"
#include "timing.h"

#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE 64

/* ---- Latency ---- */

/* x -> 1664525 x + 1013904223 modulo a power of two visits every number once (Hull and Dobell 1962; the constants are
 * those of Knuth and Lewis), in an order that no prefetcher follows. It needs no list of places, so that 64 MiB are
 * linked in some ten milliseconds. */
static uint64_t line_after(uint64_t line, uint64_t lines) { return (line * 1664525 + 1013904223) & (lines - 1); }

#define AHEAD 32 /* lines on their way: in an order that no prefetcher follows, each store would wait for its own */

void amdcheck_chase_link(void *base, uint64_t lines) {
    uint64_t line = 0, ahead = 0;
    for (int step = 0; step < AHEAD; step++)
        ahead = line_after(ahead, lines);
    do {
        const uint64_t next = line_after(line, lines);
        __builtin_prefetch((char *)base + ahead * LINE, 1);
        ahead = line_after(ahead, lines);
        *(void **)((char *)base + line * LINE) = (char *)base + next * LINE;
        line = next;
    } while (line != 0);
}

uint64_t amdcheck_chase_differences(const void *base, uint64_t lines) {
    uint64_t differences = 0;
    for (uint64_t line = 0; line < lines; line++)
        differences += *(void *const *)((const char *)base + line * LINE) !=
                       (const void *)((const char *)base + line_after(line, lines) * LINE);
    return differences;
}

double amdcheck_time_chase(void **position, uint64_t hops) {
    void *at = *position;
    const double start = amdcheck_seconds();
    for (uint64_t hop = 0; hop < hops; hop += 8) {
        at = *(void **)at, at = *(void **)at, at = *(void **)at, at = *(void **)at;
        at = *(void **)at, at = *(void **)at, at = *(void **)at, at = *(void **)at;
    }
    __asm__ volatile("" : "+r"(at)); /* the last hop has happened before the clock is read */
    const double took = amdcheck_seconds() - start;
    *position = at;
    return took;
}

/* ---- False sharing ---- */

struct counter {
    uint64_t *place;
    uint64_t increments;
    int32_t cpu;
    int *waiting;
    double seconds;
    int failed;
};

static void *count(void *given) {
    struct counter *counter = given;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)counter->cpu, &one);
    counter->failed = sched_setaffinity(0, sizeof one, &one);
    /* Not pthread_barrier: who wakes up from it late finds the other one done. */
    __atomic_sub_fetch(counter->waiting, 1, __ATOMIC_ACQ_REL);
    while (__atomic_load_n(counter->waiting, __ATOMIC_ACQUIRE) > 0)
        sched_yield();
    const double start = amdcheck_seconds();
    /* Atomic: a plain increment waits in the store buffer and hides what the line costs. */
    for (uint64_t i = 0; i < counter->increments; i++)
        __atomic_fetch_add(counter->place, 1, __ATOMIC_RELAXED);
    counter->seconds = amdcheck_seconds() - start;
    return NULL;
}

double amdcheck_time_sharing(const int32_t cpus[2], uint64_t *first, uint64_t *second, uint64_t increments,
                             uint64_t missed) {
    int waiting = 2;
    struct counter counters[2] = {{first, increments, cpus[0], &waiting, 0, 0},
                                  {second, increments - missed, cpus[1], &waiting, 0, 0}};
    pthread_t thread;
    if (pthread_create(&thread, NULL, count, &counters[1]) != 0)
        return -1;
    count(&counters[0]);
    pthread_join(thread, NULL);
    if (counters[0].failed || counters[1].failed)
        return -1;
    return counters[0].seconds > counters[1].seconds ? counters[0].seconds : counters[1].seconds;
}

/* ---- Patterns ---- */

static uint64_t word_of(enum amdcheck_pattern pattern, uint64_t seed, uint64_t place) {
    uint64_t mixed;
    switch (pattern) {
    case AMDCHECK_WALKING_ONE: /* each bit of each place is once the only one set, as the seed goes from 0 to 63 */
        return UINT64_C(1) << ((place + seed) % 64);
    case AMDCHECK_WALKING_ZERO:
        return ~(UINT64_C(1) << ((place + seed) % 64));
    case AMDCHECK_CHECKERBOARD:
        return ((place + seed) & 1) != 0 ? UINT64_C(0x5555555555555555) : UINT64_C(0xaaaaaaaaaaaaaaaa);
    case AMDCHECK_PLACE: /* a word written to the wrong place is told by what it says */
        return place ^ seed;
    case AMDCHECK_RANDOM:
    case AMDCHECK_RANDOM_INVERTED:
    default: /* splitmix64, Vigna 2015 */
        mixed = (place + seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
        mixed = (mixed ^ (mixed >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        mixed = (mixed ^ (mixed >> 27)) * UINT64_C(0x94d049bb133111eb);
        mixed ^= mixed >> 31;
        return pattern == AMDCHECK_RANDOM_INVERTED ? ~mixed : mixed;
    }
}

void amdcheck_pattern_fill(uint64_t *words, uint64_t count, enum amdcheck_pattern pattern, uint64_t seed,
                           int64_t wrong) {
    for (uint64_t place = 0; place < count; place++)
        words[place] = word_of(pattern, seed, place) ^ (place == (uint64_t)wrong ? 1 : 0);
}

uint64_t amdcheck_pattern_differences(const uint64_t *words, uint64_t count, enum amdcheck_pattern pattern,
                                      uint64_t seed, struct amdcheck_difference *found, uint64_t capacity) {
    uint64_t differences = 0;
    for (uint64_t place = 0; place < count; place++) {
        const uint64_t want = word_of(pattern, seed, place), got = words[place];
        if (got == want)
            continue;
        if (differences < capacity)
            found[differences] = (struct amdcheck_difference){place, got, want};
        differences++;
    }
    return differences;
}

/* ---- Placement: system calls, so that no libnuma is needed ---- */

#define BIND 2 /* MPOL_BIND and the flags of get_mempolicy, from linux/mempolicy.h */
#define NODE_OF_ADDRESS 3
#define MAX_NODES 1024

int32_t amdcheck_bind_memory(int32_t node) {
    unsigned long mask[MAX_NODES / (8 * sizeof(unsigned long))] = {0};
    if (node < 0 || node >= MAX_NODES)
        return -1;
    mask[(size_t)node / (8 * sizeof *mask)] |= 1UL << ((size_t)node % (8 * sizeof *mask));
    return (int32_t)syscall(SYS_set_mempolicy, BIND, mask, MAX_NODES + 1);
}

int32_t amdcheck_node_of(const void *address) {
    int node = -1;
    return syscall(SYS_get_mempolicy, &node, NULL, 0, address, NODE_OF_ADDRESS) == 0 ? node : -1;
}
