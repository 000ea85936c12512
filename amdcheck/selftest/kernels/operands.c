/* Operands whose right answer is exact, the right answers, and the comparison: integers, one at a time.
 * This file is compiled without vectorization: the reference must not use the units that it judges. */
#include "amdcheck_kernels.h"

#include <string.h>

static uint64_t next_random(uint64_t *state) { /* xorshift64*, Vigna 2016 */
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * UINT64_C(2685821657736338717);
}

/* An integer from -limit to limit; every eighth is an end of the range, where carries and sign bits are. */
static int32_t pick(uint64_t *state, int32_t limit) {
    const uint64_t random = next_random(state) >> 16;
    if ((random & 7) == 0)
        return (random & 8) != 0 ? limit : -limit;
    return (int32_t)((random >> 8) % (uint64_t)(2 * limit + 1)) - limit;
}

static uint32_t float_word(int32_t integer) {
    const float value = (float)integer;
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

/* bfloat16 is the upper half of a float; integers up to 255 lose nothing. */
static uint32_t bf16_half(int32_t integer) { return float_word(integer) >> 16; }

/* How many products one word of a and b stands for, and the largest operands on each side. */
struct limits {
    uint32_t products;
    int32_t a;
    int32_t b;
};

static struct limits limits_of(enum amdcheck_operands operands) {
    switch (operands) {
    case AMDCHECK_F32: /* 16 steps * 2047 * 511 < 2^24 */
        return (struct limits){1, 2047, 511};
    case AMDCHECK_S16: /* not -32768: two of its squares do not fit in the 32 bits of pmaddwd */
        return (struct limits){2, 32767, 32767};
    case AMDCHECK_U8S8: /* a is shifted to 0..255 */
        return (struct limits){4, 127, 127};
    case AMDCHECK_BF16: /* 64 steps * 2 * 255 * 255 < 2^24 */
    default:
        return (struct limits){2, 255, 255};
    }
}

/* Put one operand at its place in a word. */
static uint32_t packed(enum amdcheck_operands operands, int32_t integer, uint32_t place) {
    switch (operands) {
    case AMDCHECK_F32:
        return float_word(integer);
    case AMDCHECK_S16:
        return ((uint32_t)integer & 0xffffu) << (16 * place);
    case AMDCHECK_U8S8:
        return ((uint32_t)integer & 0xffu) << (8 * place);
    case AMDCHECK_BF16:
    default:
        return bf16_half(integer) << (16 * place);
    }
}

#define MAX_PRODUCTS 4
#define MAX_REGISTERS 32
#define MAX_LANES 16

/* One step of one block: its operands as integers, written as words, and added to the exact sums. */
static void one_step(const struct amdcheck_kernel *kernel, uint64_t *state, uint32_t *a, uint32_t *b,
                     int64_t sums[MAX_REGISTERS][MAX_LANES]) {
    const struct limits limits = limits_of(kernel->operands);
    int32_t left[MAX_REGISTERS][MAX_PRODUCTS], right[MAX_LANES][MAX_PRODUCTS];

    for (uint32_t r = 0; r < kernel->registers; r++) {
        a[r] = 0;
        for (uint32_t p = 0; p < limits.products; p++) {
            left[r][p] = pick(state, limits.a);
            if (kernel->operands == AMDCHECK_U8S8)
                left[r][p] = left[r][p] == limits.a ? 255 : left[r][p] + limits.a;
            a[r] |= packed(kernel->operands, left[r][p], p);
        }
    }
    for (uint32_t l = 0; l < kernel->lanes; l++) {
        b[l] = 0;
        for (uint32_t p = 0; p < limits.products; p++) {
            right[l][p] = pick(state, limits.b);
            if (kernel->operands == AMDCHECK_U8S8 && right[l][p] == -limits.b)
                right[l][p] = -128;
            b[l] |= packed(kernel->operands, right[l][p], p);
        }
    }
    for (uint32_t r = 0; r < kernel->registers; r++)
        for (uint32_t l = 0; l < kernel->lanes; l++)
            for (uint32_t p = 0; p < limits.products; p++)
                sums[r][l] += (int64_t)left[r][p] * right[l][p];
}

void amdcheck_operands(const struct amdcheck_kernel *kernel, uint64_t seed, uint32_t blocks, uint32_t *a, uint32_t *b,
                       uint32_t *want) {
    const int floats = kernel->operands == AMDCHECK_F32 || kernel->operands == AMDCHECK_BF16;
    uint64_t state = seed | 1; /* never zero, where xorshift would stay */

    for (uint32_t block = 0; block < blocks; block++) {
        int64_t sums[MAX_REGISTERS][MAX_LANES] = {{0}};
        for (uint32_t s = 0; s < kernel->steps; s++) {
            one_step(kernel, &state, a, b, sums);
            a += kernel->registers;
            b += kernel->lanes;
        }
        for (uint32_t r = 0; r < kernel->registers; r++)
            for (uint32_t l = 0; l < kernel->lanes; l++)
                *want++ = floats ? float_word((int32_t)sums[r][l]) : (uint32_t)sums[r][l];
    }
}

uint32_t amdcheck_differences(const uint32_t *got, const uint32_t *want, uint32_t words, uint32_t *where,
                              uint32_t capacity) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < words; i++) {
        if (got[i] == want[i])
            continue;
        if (found < capacity)
            where[found] = i;
        found++;
    }
    return found;
}
