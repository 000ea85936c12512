/* Operands whose right answer is exact, the right answers, and the comparison: integers, one at a time.
 * This file is compiled without vectorization: the reference must not use the units that it judges. */
#include "gemm.h"

#include <stdlib.h>
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

/* The float that is this integer; exact, where its mantissa has at most 24 bits. */
static uint32_t float_word(int64_t integer) {
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

#define PATTERNS 16
#define SHIFTS 8

/* The largest float operand, so that k products of two of them stay below 2^24 in every order of addition. */
static int32_t exact_limit(uint64_t k, int32_t limit) {
    while (limit > 1 && (uint64_t)limit * (uint64_t)limit * k >= UINT64_C(1) << 24)
        limit--;
    return limit;
}

/* What a row or a column is: one of the patterns, times a sign and, for floats, a power of two, which changes no
 * mantissa. */
struct vector {
    uint32_t pattern;
    int32_t factor;
};

static struct vector pick_vector(uint64_t *state, int floats, int is_signed) {
    const uint64_t random = next_random(state) >> 16;
    const int32_t size = floats ? 1 << ((random >> 8) % SHIFTS) : 1;
    return (struct vector){(uint32_t)(random >> 1) % PATTERNS, is_signed && (random & 1) != 0 ? -size : size};
}

/* One number into a matrix: a float, the upper half of one, or a byte. */
static void put(enum amdcheck_operands operands, void *matrix, uint64_t place, int32_t integer) {
    if (operands == AMDCHECK_F32)
        ((uint32_t *)matrix)[place] = float_word(integer);
    else if (operands == AMDCHECK_BF16)
        ((uint16_t *)matrix)[place] = (uint16_t)bf16_half(integer);
    else
        ((uint8_t *)matrix)[place] = (uint8_t)integer;
}

#define MOST_K (UINT64_C(1) << 24) /* from it on not even sums of ones are exact in a float */

/* Every row of a is one of a few rows of integers times a factor, and every column of b likewise. So the right answers
 * cost PATTERNS^2 * k products instead of m * n * k, and still hardly two rows or columns are alike. */
int32_t amdcheck_gemm_operands(const struct amdcheck_gemm *g, uint64_t seed, uint64_t m, uint64_t n, uint64_t k,
                               void *a, void *b, uint32_t *want) {
    if (k >= MOST_K || m > UINT32_MAX / n)
        return -1;
    const int floats = g->operands != AMDCHECK_U8S8;
    const int32_t limit_a = floats ? exact_limit(k, g->limit) : g->limit, limit_b = floats ? limit_a : 127;
    uint64_t state = seed | 1; /* never zero, where xorshift would stay */
    int64_t sums[PATTERNS][PATTERNS] = {{0}};
    int32_t *left = malloc(2 * PATTERNS * k * sizeof *left);
    struct vector *columns = malloc(n * sizeof *columns);
    if (left == NULL || columns == NULL) {
        free(left), free(columns);
        return -1;
    }
    int32_t *right = left + PATTERNS * k;
    for (uint64_t i = 0; i < PATTERNS * k; i++) {
        left[i] = pick(&state, limit_a);
        if (!floats && left[i] < 0) /* unsigned bytes */
            left[i] = -left[i];
        right[i] = pick(&state, limit_b);
    }
    for (uint32_t p = 0; p < PATTERNS; p++)
        for (uint32_t q = 0; q < PATTERNS; q++)
            for (uint64_t s = 0; s < k; s++)
                sums[p][q] += (int64_t)left[p * k + s] * right[q * k + s];
    for (uint64_t j = 0; j < n; j++)
        columns[j] = pick_vector(&state, floats, 1);
    for (uint64_t s = 0; s < k; s++)
        for (uint64_t j = 0; j < n; j++)
            put(g->operands, b, s * n + j, right[columns[j].pattern * k + s] * columns[j].factor);
    for (uint64_t i = 0; i < m; i++) {
        const struct vector row = pick_vector(&state, floats, floats);
        for (uint64_t s = 0; s < k; s++)
            put(g->operands, a, i * k + s, left[row.pattern * k + s] * row.factor);
        for (uint64_t j = 0; j < n; j++) {
            const int64_t sum = sums[row.pattern][columns[j].pattern] * row.factor * columns[j].factor;
            *want++ = floats ? float_word(sum) : (uint32_t)sum;
        }
    }
    free(left), free(columns);
    return 0;
}

/* Integers below 2^10: b + 3 c is exact in a double, and no neighbours are alike. */
static int64_t triad_b(uint64_t i) { return (int64_t)((i * 2654435761u) >> 7 & 1023); }
static int64_t triad_c(uint64_t i) { return (int64_t)((i * 40503u) >> 3 & 1023); }

void amdcheck_triad_operands(double *b, double *c, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        b[i] = (double)triad_b(i);
        c[i] = (double)triad_c(i);
    }
}

uint64_t amdcheck_triad_differences(const double *a, uint64_t count, uint64_t *where) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double want = (double)(triad_b(i) + 3 * triad_c(i));
        if (memcmp(&a[i], &want, sizeof want) != 0 && found++ == 0)
            *where = i;
    }
    return found;
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
