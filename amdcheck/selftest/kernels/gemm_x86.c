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

/* Bytes from a row of a to the next: a block's steps, and a line more, so that the rows of a tile lie in different sets
 * of the first-level cache. */
#define A_STRIDE 1088

/* A word of a in every lane, times both vectors of b. Two registers take turns for the word. */
#define WORD(s, i) "4*" #s "+" TEXT(A_STRIDE) "*" #i "(%[a])"
#define STEP_YMM(multiply_add, s, i, low, high)                                                                        \
    "vbroadcastss " WORD(s, i) ", %%ymm14\n\t" multiply_add " %%ymm12, %%ymm14, %%ymm" #low "\n\t" multiply_add     \
    " %%ymm13, %%ymm14, %%ymm" #high "\n\t"
#define STEP_ZMM(multiply_add, s, i, low, high)                                                                        \
    "vbroadcastss " WORD(s, i) ", %%zmm30\n\t" multiply_add " %%zmm28, %%zmm30, %%zmm" #low "\n\t" multiply_add    \
    " %%zmm29, %%zmm30, %%zmm" #high "\n\t"

#define TILE gemm_fma
#define SHORT_TILE gemm_fma_short
#define TARGET __attribute__((target("avx2,fma")))
#define ROWS ROWS_6
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
#define VECTOR "ymm"
#define BYTES 32
#define B_LOW "%%ymm8"
#define B_HIGH "%%ymm9"
#define STEP(s, i, low, high)                                                                                          \
    "vbroadcastss " WORD(s, i) ", %%ymm10\n\t"                                                                      \
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
#define SHORT_TILE gemm_avx_vnni_short
#define TARGET __attribute__((target("avx2")))
#define ROWS ROWS_6
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
#define SHORT_TILE gemm_avx512f_short
#define TARGET __attribute__((target("avx512f")))
#define ROWS ROWS_14
#define VECTOR "zmm"
#define BYTES 64
#define B_LOW "%%zmm28"
#define B_HIGH "%%zmm29"
#define STEP(s, i, low, high) STEP_ZMM("vfmadd231ps", s, i, low, high)
#define SETUP
#define XOR "vpxord"
#define ADD "vaddps"
#define CLOBBERS CLOBBERS_32
#define TALL
#include "gemm_tile.inc.h"
#endif

#ifdef AMDCHECK_HAS_AVX512VNNI
#define TILE gemm_avx512_vnni
#define SHORT_TILE gemm_avx512_vnni_short
#define TARGET __attribute__((target("avx512f")))
#define ROWS ROWS_14
#define VECTOR "zmm"
#define BYTES 64
#define B_LOW "%%zmm28"
#define B_HIGH "%%zmm29"
#define STEP(s, i, low, high) STEP_ZMM("vpdpbusd", s, i, low, high)
#define SETUP
#define XOR "vpxord"
#define ADD "vpaddd"
#define CLOBBERS CLOBBERS_32
#define TALL
#include "gemm_tile.inc.h"
#endif

#ifdef AMDCHECK_HAS_AVX512BF16
#define TILE gemm_avx512_bf16
#define SHORT_TILE gemm_avx512_bf16_short
#define TARGET __attribute__((target("avx512f")))
#define ROWS ROWS_14
#define VECTOR "zmm"
#define BYTES 64
#define B_LOW "%%zmm28"
#define B_HIGH "%%zmm29"
#define STEP(s, i, low, high) STEP_ZMM("vdpbf16ps", s, i, low, high)
#define SETUP
#define XOR "vpxord"
#define ADD "vaddps"
#define CLOBBERS CLOBBERS_32
#define TALL
#include "gemm_tile.inc.h"
#endif

const struct amdcheck_gemm amdcheck_gemms[] = {
    {"fma", AMDCHECK_F32, 6, 16, 1, 2047, gemm_fma, gemm_fma_short, amdcheck_ports_fma},
    {"avx2", AMDCHECK_U8S8, 4, 16, 4, 127, gemm_avx2, NULL, amdcheck_ports_avx2},
    {"avx2-full-range", AMDCHECK_U8S8, 4, 16, 4, 255, gemm_avx2, NULL, amdcheck_ports_avx2}, /* saturates, and so is wrong */
#ifdef AMDCHECK_HAS_AVXVNNI
    {"avx_vnni", AMDCHECK_U8S8, 6, 16, 4, 255, gemm_avx_vnni, gemm_avx_vnni_short, amdcheck_ports_avx_vnni},
#endif
#ifdef AMDCHECK_HAS_AVX512F
    {"avx512f", AMDCHECK_F32, 14, 32, 1, 2047, gemm_avx512f, gemm_avx512f_short, amdcheck_ports_avx512f},
#endif
#ifdef AMDCHECK_HAS_AVX512VNNI
    {"avx512_vnni", AMDCHECK_U8S8, 14, 32, 4, 255, gemm_avx512_vnni, gemm_avx512_vnni_short, amdcheck_ports_avx512_vnni},
#endif
#ifdef AMDCHECK_HAS_AVX512BF16
    {"avx512_bf16", AMDCHECK_BF16, 14, 32, 2, 255, gemm_avx512_bf16, gemm_avx512_bf16_short, amdcheck_ports_avx512_bf16},
#endif
    {.name = NULL},
};

/* Steps of a block: a panel of b (2 vectors a step) stays in the first-level cache, 16 KiB (AVX) or 32 KiB. Rows of a
 * block, whole tiles of every height: its part of a stays in the second-level cache. Columns: b's whole block stays in
 * the cache behind that. */
#define BLOCK_STEPS 256
#define BLOCK_ROWS 84
#define BLOCK_COLUMNS 4096
#define MAX_TILE (14 * 32)
#define SHORT_ROWS 4

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t up_to(uint64_t a, uint64_t multiple) { return (a + multiple - 1) / multiple * multiple; }

/* k in steps, cut into equal blocks of whole quads. */
static uint64_t block_steps(uint64_t steps) {
    const uint64_t blocks = (steps + BLOCK_STEPS - 1) / BLOCK_STEPS;
    return up_to((steps + blocks - 1) / blocks, 4);
}

static uint64_t a_words(uint64_t m) { return (least(m, BLOCK_ROWS) + SHORT_ROWS - 1) * (A_STRIDE / 4); }

static uint64_t b_words(const struct amdcheck_gemm *g, uint64_t n, uint64_t per_block) {
    return up_to(least(n, BLOCK_COLUMNS), g->lanes) * per_block;
}

uint64_t amdcheck_gemm_workspace(const struct amdcheck_gemm *g, uint64_t m, uint64_t n, uint64_t k) {
    const uint64_t per_block = block_steps((k + g->group - 1) / g->group);
    return 4 * (a_words(m) + b_words(g, n, per_block) + MAX_TILE);
}

#define INLINE static inline __attribute__((always_inline))

/* Rows of a from word `first`, one after the other: a tile takes its words where they lie. Behind the end of a row, and
 * in the rows that a tile reads behind the last one, there are zeros. */
static void pack_a(uint32_t *to, const uint8_t *a, uint64_t row_bytes, uint64_t rows, uint64_t first, uint64_t padded) {
    const uint64_t bytes = least(4 * padded, row_bytes - 4 * first);
    for (uint64_t i = 0; i < rows; i++, to += A_STRIDE / 4) {
        memcpy(to, a + i * row_bytes + 4 * first, bytes);
        memset((uint8_t *)to + bytes, 0, 4 * padded - bytes);
    }
    for (uint64_t i = 0; i < SHORT_ROWS - 1; i++, to += A_STRIDE / 4)
        memset(to, 0, 4 * padded);
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
        pack_columns(group_, lanes_, to, b, n, k, column, columns, first, padded);

/* Every pair of the tables, written out: packing is measurably faster where the compiler knows the strides. */
static void pack_b(const struct amdcheck_gemm *g, uint32_t *to, const uint8_t *b, uint64_t n, uint64_t k,
                   uint64_t column, uint64_t columns, uint64_t first, uint64_t padded) {
    COLUMNS(1, 16) COLUMNS(1, 32) COLUMNS(2, 32) COLUMNS(4, 16) COLUMNS(4, 32)
}

/* Rows of the next tile: short ones where they cover what is left with less work than a whole one. */
static uint64_t tile_rows(const struct amdcheck_gemm *g, uint64_t left) {
    return left < g->rows && up_to(left, SHORT_ROWS) < g->rows ? SHORT_ROWS : g->rows;
}

/* A tile that hangs over the edge of c is computed aside. */
static void edge(const struct amdcheck_gemm *g, amdcheck_gemm_tile *tile, uint64_t steps, const uint32_t *a,
                 const uint32_t *b, uint32_t *c, uint64_t n, uint64_t rows, uint64_t columns, int add,
                 const uint32_t *mask, uint32_t *aside) {
    if (add)
        for (uint64_t i = 0; i < rows; i++)
            memcpy(aside + i * g->lanes, c + i * n, 4 * columns);
    tile(steps, a, b, aside, 4 * g->lanes, (uint64_t)add, mask);
    for (uint64_t i = 0; i < rows; i++)
        memcpy(c + i * n, aside + i * g->lanes, 4 * columns);
}

static void multiply(const struct amdcheck_gemm *g, uint64_t m, uint64_t n, uint64_t k, const uint8_t *a,
                     const uint8_t *b, uint32_t *c, uint32_t *workspace, int64_t wrong) {
    const uint64_t steps = (k + g->group - 1) / g->group, per_block = block_steps(steps);
    const uint64_t row_bytes = k * (4 / g->group);
    uint32_t *packed_a = workspace, *packed_b = packed_a + a_words(m);
    uint32_t *aside = packed_b + b_words(g, n, per_block);
    uint32_t mask[MAX_TILE] = {0};
    const uint64_t wrong_row = wrong < 0 ? UINT64_MAX : (uint64_t)wrong / n, wrong_column = (uint64_t)wrong % n;

    for (uint64_t jc = 0; jc < n; jc += BLOCK_COLUMNS) {
        const uint64_t columns = least(BLOCK_COLUMNS, n - jc);
        for (uint64_t first = 0; first < steps; first += per_block) {
            const uint64_t padded = up_to(least(per_block, steps - first), 4);
            const int last = first + per_block >= steps;
            pack_b(g, packed_b, b, n, k, jc, columns, first, padded);
            for (uint64_t ic = 0; ic < m; ic += BLOCK_ROWS) {
                const uint64_t rows = least(BLOCK_ROWS, m - ic);
                pack_a(packed_a, a + ic * row_bytes, row_bytes, rows, first, padded);
                for (uint64_t j = 0; j < columns; j += g->lanes)
                    for (uint64_t i = 0, height; i < rows; i += height) {
                        height = tile_rows(g, rows - i);
                        amdcheck_gemm_tile *tile = height < g->rows ? g->short_tile : g->tile;
                        const uint64_t tall = least(height, rows - i), wide = least(g->lanes, columns - j);
                        const uint64_t row = ic + i, column = jc + j;
                        const uint64_t at = wrong_row - row, in = wrong_column - column;
                        const int planted = last && at < tall && in < wide;
                        if (planted)
                            mask[at * g->lanes + in] = 1;
                        const uint32_t *pa = packed_a + i * (A_STRIDE / 4), *pb = packed_b + j * padded;
                        uint32_t *to = c + row * n + column;
                        if (tall == height && wide == g->lanes)
                            tile(padded, pa, pb, to, 4 * n, first > 0, planted ? mask : NULL);
                        else
                            edge(g, tile, padded, pa, pb, to, n, tall, wide, first > 0, planted ? mask : NULL, aside);
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
