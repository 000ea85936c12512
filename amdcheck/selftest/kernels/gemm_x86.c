/* Matrix products as inference libraries compute them: packed panels, a register tile, blocks that fit the caches.
 *
 * One driver serves every instruction set. It sees words of 32 bits: one float, two bfloat16 or four 8-bit numbers, so
 * that a step of every tile takes one word of a and one vector pair of b, and adds to words of c.
 */
#define _GNU_SOURCE
#include "gemm.h"
#include "timing.h"

#include <emmintrin.h>
#include <stddef.h>
#include <string.h>

#define ROWS_14(X)                                                                                                     \
    X(0, 0, 1) X(1, 2, 3) X(2, 4, 5) X(3, 6, 7) X(4, 8, 9) X(5, 10, 11) X(6, 12, 13) X(7, 14, 15) X(8, 16, 17)         \
    X(9, 18, 19) X(10, 20, 21) X(11, 22, 23) X(12, 24, 25) X(13, 26, 27)
#define ROWS_6(X) X(0, 0, 1) X(1, 2, 3) X(2, 4, 5) X(3, 6, 7) X(4, 8, 9) X(5, 10, 11)
#define ROWS_4(X) X(0, 0, 1) X(1, 2, 3) X(2, 4, 5) X(3, 6, 7)
#define CLOBBERS_16                                                                                                    \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",         \
        "xmm13", "xmm14", "xmm15"
#define CLOBBERS_32                                                                                                    \
    CLOBBERS_16, "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22", "xmm23", "xmm24", "xmm25", "xmm26",    \
        "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"

/* A word of a in every lane, times both vectors of b. Two registers take turns for the word. */
#define WORD(s, i, rows) "4*(" #s "*" #rows "+" #i ")(%[a])"
#define STEP_YMM(multiply_add, s, i, low, high)                                                                        \
    "vbroadcastss " WORD(s, i, 6) ", %%ymm14\n\t" multiply_add " %%ymm12, %%ymm14, %%ymm" #low "\n\t" multiply_add     \
    " %%ymm13, %%ymm14, %%ymm" #high "\n\t"
#define STEP_ZMM(multiply_add, s, i, low, high)                                                                        \
    "vbroadcastss " WORD(s, i, 14) ", %%zmm30\n\t" multiply_add " %%zmm28, %%zmm30, %%zmm" #low "\n\t" multiply_add    \
    " %%zmm29, %%zmm30, %%zmm" #high "\n\t"

#define TILE gemm_fma
#define TARGET __attribute__((target("avx2,fma")))
#define ROWS ROWS_6
#define STEP_ROWS 6
#define VECTOR "ymm"
#define BYTES 32
#define B_LOW "%%ymm12"
#define B_HIGH "%%ymm13"
#define STEP(s, i, low, high) STEP_YMM("vfmadd231ps", s, i, low, high)
#define SETUP
#define XOR "vxorps"
#define ADD "vaddps"
#define CLOBBERS CLOBBERS_16
#include "gemm_tile.inc.h"

/* Before VNNI: pairs of products are summed in 16 bits and saturate there, which operands of seven bits avoid. */
#define TILE gemm_avx2
#define TARGET __attribute__((target("avx2")))
#define ROWS ROWS_4
#define STEP_ROWS 4
#define VECTOR "ymm"
#define BYTES 32
#define B_LOW "%%ymm8"
#define B_HIGH "%%ymm9"
#define STEP(s, i, low, high)                                                                                          \
    "vbroadcastss " WORD(s, i, 4) ", %%ymm10\n\t"                                                                      \
    "vpmaddubsw %%ymm8, %%ymm10, %%ymm11\n\t"                                                                          \
    "vpmaddubsw %%ymm9, %%ymm10, %%ymm12\n\t"                                                                          \
    "vpmaddwd %%ymm13, %%ymm11, %%ymm11\n\t"                                                                           \
    "vpmaddwd %%ymm13, %%ymm12, %%ymm12\n\t"                                                                           \
    "vpaddd %%ymm11, %%ymm" #low ", %%ymm" #low "\n\t"                                                                 \
    "vpaddd %%ymm12, %%ymm" #high ", %%ymm" #high "\n\t"
#define SETUP "vpcmpeqw %%ymm13, %%ymm13, %%ymm13\n\tvpsrlw $15, %%ymm13, %%ymm13\n\t" /* sixteen times 1 */
#define XOR "vpxor"
#define ADD "vpaddd"
#define CLOBBERS CLOBBERS_16
#include "gemm_tile.inc.h"

#ifdef AMDCHECK_HAS_AVXVNNI
#define TILE gemm_avx_vnni
#define TARGET __attribute__((target("avx2")))
#define ROWS ROWS_6
#define STEP_ROWS 6
#define VECTOR "ymm"
#define BYTES 32
#define B_LOW "%%ymm12"
#define B_HIGH "%%ymm13"
#define STEP(s, i, low, high) STEP_YMM("%{vex%} vpdpbusd", s, i, low, high)
#define SETUP
#define XOR "vpxor"
#define ADD "vpaddd"
#define CLOBBERS CLOBBERS_16
#include "gemm_tile.inc.h"
#endif

#ifdef AMDCHECK_HAS_AVX512F
#define TILE gemm_avx512f
#define TARGET __attribute__((target("avx512f")))
#define ROWS ROWS_14
#define STEP_ROWS 14
#define VECTOR "zmm"
#define BYTES 64
#define B_LOW "%%zmm28"
#define B_HIGH "%%zmm29"
#define STEP(s, i, low, high) STEP_ZMM("vfmadd231ps", s, i, low, high)
#define SETUP
#define XOR "vpxord"
#define ADD "vaddps"
#define CLOBBERS CLOBBERS_32
#include "gemm_tile.inc.h"
#endif

#ifdef AMDCHECK_HAS_AVX512VNNI
#define TILE gemm_avx512_vnni
#define TARGET __attribute__((target("avx512f")))
#define ROWS ROWS_14
#define STEP_ROWS 14
#define VECTOR "zmm"
#define BYTES 64
#define B_LOW "%%zmm28"
#define B_HIGH "%%zmm29"
#define STEP(s, i, low, high) STEP_ZMM("vpdpbusd", s, i, low, high)
#define SETUP
#define XOR "vpxord"
#define ADD "vpaddd"
#define CLOBBERS CLOBBERS_32
#include "gemm_tile.inc.h"
#endif

#ifdef AMDCHECK_HAS_AVX512BF16
#define TILE gemm_avx512_bf16
#define TARGET __attribute__((target("avx512f")))
#define ROWS ROWS_14
#define STEP_ROWS 14
#define VECTOR "zmm"
#define BYTES 64
#define B_LOW "%%zmm28"
#define B_HIGH "%%zmm29"
#define STEP(s, i, low, high) STEP_ZMM("vdpbf16ps", s, i, low, high)
#define SETUP
#define XOR "vpxord"
#define ADD "vaddps"
#define CLOBBERS CLOBBERS_32
#include "gemm_tile.inc.h"
#endif

const struct amdcheck_gemm amdcheck_gemms[] = {
    {"fma", AMDCHECK_F32, 6, 16, 1, 2047, gemm_fma, amdcheck_ports_fma},
    {"avx2", AMDCHECK_U8S8, 4, 16, 4, 127, gemm_avx2, amdcheck_ports_avx2},
    {"avx2-full-range", AMDCHECK_U8S8, 4, 16, 4, 255, gemm_avx2, amdcheck_ports_avx2}, /* saturates, and so is wrong */
#ifdef AMDCHECK_HAS_AVXVNNI
    {"avx_vnni", AMDCHECK_U8S8, 6, 16, 4, 255, gemm_avx_vnni, amdcheck_ports_avx_vnni},
#endif
#ifdef AMDCHECK_HAS_AVX512F
    {"avx512f", AMDCHECK_F32, 14, 32, 1, 2047, gemm_avx512f, amdcheck_ports_avx512f},
#endif
#ifdef AMDCHECK_HAS_AVX512VNNI
    {"avx512_vnni", AMDCHECK_U8S8, 14, 32, 4, 255, gemm_avx512_vnni, amdcheck_ports_avx512_vnni},
#endif
#ifdef AMDCHECK_HAS_AVX512BF16
    {"avx512_bf16", AMDCHECK_BF16, 14, 32, 2, 255, gemm_avx512_bf16, amdcheck_ports_avx512_bf16},
#endif
    {.name = NULL},
};

/* Steps of a block: a panel of b (2 vectors a step) stays in the first-level cache, 16 KiB (AVX) or 32 KiB. Rows of a
 * block: its panel of a stays in the second-level cache. Columns: b's whole block stays in the cache behind that. */
#define BLOCK_STEPS 256
#define BLOCK_ROWS 168
#define BLOCK_COLUMNS 4096
#define MAX_TILE (14 * 32)

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t up_to(uint64_t a, uint64_t multiple) { return (a + multiple - 1) / multiple * multiple; }

/* k in steps, cut into equal blocks of whole quads. */
static uint64_t block_steps(uint64_t steps) {
    const uint64_t blocks = (steps + BLOCK_STEPS - 1) / BLOCK_STEPS;
    return up_to((steps + blocks - 1) / blocks, 4);
}

static uint64_t a_words(const struct amdcheck_gemm *g, uint64_t m, uint64_t per_block) {
    return up_to(least(m, up_to(BLOCK_ROWS, g->rows)), g->rows) * per_block;
}

static uint64_t b_words(const struct amdcheck_gemm *g, uint64_t n, uint64_t per_block) {
    return up_to(least(n, BLOCK_COLUMNS), g->lanes) * per_block;
}

uint64_t amdcheck_gemm_workspace(const struct amdcheck_gemm *g, uint64_t m, uint64_t n, uint64_t k) {
    const uint64_t per_block = block_steps((k + g->group - 1) / g->group);
    return 4 * (a_words(g, m, per_block) + b_words(g, n, per_block) + MAX_TILE);
}

/* Up to four bytes as a word: what lies behind the end of a row counts as zero. */
static uint32_t word_at(const uint8_t *row, uint64_t bytes, uint64_t word) {
    uint32_t value = 0;
    if (4 * word < bytes)
        memcpy(&value, row + 4 * word, least(4, bytes - 4 * word));
    return value;
}

#define INLINE static inline __attribute__((always_inline))

/* Four rows of four words become four words of each row. */
INLINE void transpose(uint32_t *to, uint64_t stride, const uint8_t *from, uint64_t row_bytes) {
    const __m128i r0 = _mm_loadu_si128((const __m128i *)from);
    const __m128i r1 = _mm_loadu_si128((const __m128i *)(from + row_bytes));
    const __m128i r2 = _mm_loadu_si128((const __m128i *)(from + 2 * row_bytes));
    const __m128i r3 = _mm_loadu_si128((const __m128i *)(from + 3 * row_bytes));
    const __m128i low01 = _mm_unpacklo_epi32(r0, r1), high01 = _mm_unpackhi_epi32(r0, r1);
    const __m128i low23 = _mm_unpacklo_epi32(r2, r3), high23 = _mm_unpackhi_epi32(r2, r3);
    _mm_storeu_si128((__m128i *)to, _mm_unpacklo_epi64(low01, low23));
    _mm_storeu_si128((__m128i *)(to + stride), _mm_unpackhi_epi64(low01, low23));
    _mm_storeu_si128((__m128i *)(to + 2 * stride), _mm_unpacklo_epi64(high01, high23));
    _mm_storeu_si128((__m128i *)(to + 3 * stride), _mm_unpackhi_epi64(high01, high23));
}

/* Two rows of four words become two words of each row. */
INLINE void transpose_two(uint32_t *to, uint64_t stride, const uint8_t *from, uint64_t row_bytes) {
    const __m128i r0 = _mm_loadu_si128((const __m128i *)from);
    const __m128i r1 = _mm_loadu_si128((const __m128i *)(from + row_bytes));
    const __m128i low = _mm_unpacklo_epi32(r0, r1), high = _mm_unpackhi_epi32(r0, r1);
    _mm_storel_epi64((__m128i *)to, low);
    _mm_storel_epi64((__m128i *)(to + stride), _mm_unpackhi_epi64(low, low));
    _mm_storel_epi64((__m128i *)(to + 2 * stride), high);
    _mm_storel_epi64((__m128i *)(to + 3 * stride), _mm_unpackhi_epi64(high, high));
}

/* Rows of a from `first`, as panels of `tile` rows: step after step, the rows' words side by side. */
INLINE void pack_rows(uint64_t tile, uint32_t *to, const uint8_t *a, uint64_t row_bytes, uint64_t rows, uint64_t first,
                      uint64_t padded) {
    for (uint64_t i = 0; i < rows; i += tile, to += tile * padded) {
        const uint64_t here = least(tile, rows - i);
        const uint64_t whole = row_bytes / 4 > first ? least(padded, row_bytes / 4 - first) & ~UINT64_C(3) : 0;
        uint64_t row = 0;
        for (; row + 4 <= here; row += 4)
            for (uint64_t s = 0; s < whole; s += 4)
                transpose(to + s * tile + row, tile, a + (i + row) * row_bytes + 4 * (first + s), row_bytes);
        for (; row + 2 <= here; row += 2)
            for (uint64_t s = 0; s < whole; s += 4)
                transpose_two(to + s * tile + row, tile, a + (i + row) * row_bytes + 4 * (first + s), row_bytes);
        for (uint64_t s = 0; s < padded; s++)
            for (uint64_t r = s < whole ? row : 0; r < tile; r++)
                to[s * tile + r] = r < here ? word_at(a + (i + r) * row_bytes, row_bytes, first + s) : 0;
    }
}

/* The tiles that there are, written out: packing is a tenth of a small product, and measurably faster where the
 * compiler knows the strides. */
static void pack_a(const struct amdcheck_gemm *g, uint32_t *to, const uint8_t *a, uint64_t row_bytes, uint64_t rows,
                   uint64_t first, uint64_t padded) {
    if (g->rows == 14)
        pack_rows(14, to, a, row_bytes, rows, first, padded);
    else if (g->rows == 6)
        pack_rows(6, to, a, row_bytes, rows, first, padded);
    else
        pack_rows(g->rows, to, a, row_bytes, rows, first, padded);
}

/* Sixteen columns of `group` rows become sixteen words. */
INLINE void interleave(uint32_t *to, const uint8_t *b, uint64_t row_bytes, uint32_t group) {
    __m128i *words = (__m128i *)to;
    if (group == 1) {
        memcpy(to, b, 64);
    } else if (group == 2) {
        for (int half = 0; half < 2; half++) {
            const __m128i r0 = _mm_loadu_si128((const __m128i *)(b + 16 * half));
            const __m128i r1 = _mm_loadu_si128((const __m128i *)(b + row_bytes + 16 * half));
            _mm_storeu_si128(words + 2 * half, _mm_unpacklo_epi16(r0, r1));
            _mm_storeu_si128(words + 2 * half + 1, _mm_unpackhi_epi16(r0, r1));
        }
    } else {
        const __m128i r0 = _mm_loadu_si128((const __m128i *)b);
        const __m128i r1 = _mm_loadu_si128((const __m128i *)(b + row_bytes));
        const __m128i r2 = _mm_loadu_si128((const __m128i *)(b + 2 * row_bytes));
        const __m128i r3 = _mm_loadu_si128((const __m128i *)(b + 3 * row_bytes));
        const __m128i low01 = _mm_unpacklo_epi8(r0, r1), high01 = _mm_unpackhi_epi8(r0, r1);
        const __m128i low23 = _mm_unpacklo_epi8(r2, r3), high23 = _mm_unpackhi_epi8(r2, r3);
        _mm_storeu_si128(words, _mm_unpacklo_epi16(low01, low23));
        _mm_storeu_si128(words + 1, _mm_unpackhi_epi16(low01, low23));
        _mm_storeu_si128(words + 2, _mm_unpacklo_epi16(high01, high23));
        _mm_storeu_si128(words + 3, _mm_unpackhi_epi16(high01, high23));
    }
}

/* One step of a panel of b: `columns` columns of `rows` rows become words, and zeros what the panel has beyond them. */
INLINE void pack_step(uint64_t group, uint64_t lanes, uint32_t *to, const uint8_t *b, uint64_t row_bytes,
                      uint64_t columns, uint64_t rows) {
    const uint64_t size = 4 / group; /* bytes of one number */
    if (columns >= lanes && rows >= group) {
        for (uint64_t l = 0; l < lanes; l += 16)
            interleave(to + l, b + l * size, row_bytes, group);
        return;
    }
    memset(to, 0, 4 * lanes);
    for (uint64_t p = 0; p < least(group, rows); p++)
        for (uint64_t l = 0; l < least(lanes, columns); l++)
            memcpy((uint8_t *)(to + l) + p * size, b + p * row_bytes + l * size, size);
}

/* Columns of b from `column`, as panels of `lanes` columns: step after step, the columns' words side by side. A few rows
 * at a time, from the left to the right: the processor sees streams and prefetches them, which it does not down a
 * column. */
#define STREAMS 8
INLINE void pack_columns(uint64_t group, uint64_t lanes, uint32_t *to, const uint8_t *b, uint64_t n, uint64_t k,
                         uint64_t column, uint64_t columns, uint64_t first, uint64_t padded) {
    const uint64_t size = 4 / group, row_bytes = n * size;
    for (uint64_t top = 0; top < padded; top += STREAMS)
        for (uint64_t j = 0; j < columns; j += lanes)
            for (uint64_t s = top; s < least(top + STREAMS, padded); s++) {
                const uint64_t row = least((first + s) * group, k); /* behind the last one there is nothing */
                pack_step(group, lanes, to + j * padded + s * lanes, b + row * row_bytes + (column + j) * size,
                          row_bytes, columns - j, k - row);
            }
}

#define COLUMNS(group_, lanes_)                                                                                        \
    if (g->group == group_ && g->lanes == lanes_)                                                                      \
        return pack_columns(group_, lanes_, to, b, n, k, column, columns, first, padded);

static void pack_b(const struct amdcheck_gemm *g, uint32_t *to, const uint8_t *b, uint64_t n, uint64_t k,
                   uint64_t column, uint64_t columns, uint64_t first, uint64_t padded) {
    COLUMNS(1, 16) COLUMNS(1, 32) COLUMNS(2, 32) COLUMNS(4, 16) COLUMNS(4, 32)
    pack_columns(g->group, g->lanes, to, b, n, k, column, columns, first, padded);
}

/* A tile that hangs over the edge of c is computed aside. */
static void edge(const struct amdcheck_gemm *g, uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c,
                 uint64_t n, uint64_t rows, uint64_t columns, int add, const uint32_t *mask, uint32_t *aside) {
    if (add)
        for (uint64_t i = 0; i < rows; i++)
            memcpy(aside + i * g->lanes, c + i * n, 4 * columns);
    g->tile(steps, a, b, aside, 4 * g->lanes, (uint64_t)add, mask);
    for (uint64_t i = 0; i < rows; i++)
        memcpy(c + i * n, aside + i * g->lanes, 4 * columns);
}

static void multiply(const struct amdcheck_gemm *g, uint64_t m, uint64_t n, uint64_t k, const uint8_t *a,
                     const uint8_t *b, uint32_t *c, uint32_t *workspace, int64_t wrong) {
    const uint64_t steps = (k + g->group - 1) / g->group, per_block = block_steps(steps);
    const uint64_t row_bytes = k * (4 / g->group), block_rows = up_to(BLOCK_ROWS, g->rows);
    uint32_t *packed_a = workspace, *packed_b = packed_a + a_words(g, m, per_block);
    uint32_t *aside = packed_b + b_words(g, n, per_block);
    uint32_t mask[MAX_TILE] = {0};

    for (uint64_t jc = 0; jc < n; jc += BLOCK_COLUMNS) {
        const uint64_t columns = least(BLOCK_COLUMNS, n - jc);
        for (uint64_t first = 0; first < steps; first += per_block) {
            const uint64_t padded = up_to(least(per_block, steps - first), 4);
            const int last = first + per_block >= steps;
            pack_b(g, packed_b, b, n, k, jc, columns, first, padded);
            for (uint64_t ic = 0; ic < m; ic += block_rows) {
                const uint64_t rows = least(block_rows, m - ic);
                pack_a(g, packed_a, a + ic * row_bytes, row_bytes, rows, first, padded);
                for (uint64_t j = 0; j < columns; j += g->lanes)
                    for (uint64_t i = 0; i < rows; i += g->rows) {
                        const uint64_t tall = least(g->rows, rows - i), wide = least(g->lanes, columns - j);
                        const uint64_t row = ic + i, column = jc + j;
                        const uint64_t at = (uint64_t)wrong / n - row, in = (uint64_t)wrong % n - column;
                        const int planted = wrong >= 0 && last && at < tall && in < wide;
                        if (planted)
                            mask[at * g->lanes + in] = 1;
                        const uint32_t *pa = packed_a + i * padded, *pb = packed_b + j * padded;
                        uint32_t *to = c + row * n + column;
                        if (tall == g->rows && wide == g->lanes)
                            g->tile(padded, pa, pb, to, 4 * n, first > 0, planted ? mask : NULL);
                        else
                            edge(g, padded, pa, pb, to, n, tall, wide, first > 0, planted ? mask : NULL, aside);
                        if (planted)
                            mask[at * g->lanes + in] = 0;
                    }
            }
        }
    }
}

double amdcheck_gemm_run(const struct amdcheck_gemm *g, uint64_t m, uint64_t n, uint64_t k, const void *a,
                         const void *b, uint32_t *c, void *workspace, int64_t wrong) {
    const double start = amdcheck_seconds();
    multiply(g, m, n, k, a, b, c, workspace, wrong);
    return amdcheck_seconds() - start;
}
