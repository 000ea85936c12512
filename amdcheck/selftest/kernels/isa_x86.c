/* One kernel for each instruction set that inference on x86-64 lives from: the multiply-add that its libraries are
 * built on. No -march: each function names the sets that it uses, and runs only where the Linux kernel offers them.
 *
 * The multiply-add itself is assembly. That fixes which instruction is judged, and leaves the compiler one scratch
 * register to place: with intrinsics, gcc 12 and clang 14 both spill accumulators of some of these loops.
 */
#include "amdcheck_kernels.h"

#include <cpuid.h>
#include <immintrin.h>
#include <stddef.h>

#define UNROLLED _Pragma("GCC unroll 32")
#define INLINE static inline __attribute__((always_inline))

/* ---- 128 bit: SSE2, which every x86-64 has ---- */

INLINE __m128i flip_128(__m128i v, int32_t first, int32_t wrong) {
    const __m128i word = _mm_add_epi32(_mm_setr_epi32(0, 1, 2, 3), _mm_set1_epi32(first));
    return _mm_xor_si128(v, _mm_srli_epi32(_mm_cmpeq_epi32(word, _mm_set1_epi32(wrong)), 31));
}

#define TILE tile_sse2
#define TARGET __attribute__((target("sse2")))
#define REGISTERS 14
#define LANES 4
#define VECTOR __m128i
#define ZERO() _mm_setzero_si128()
#define LOAD(p) _mm_loadu_si128((const __m128i *)(p))
#define STORE(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define MULTIPLY_ADD(sum, p, row)                                                                                      \
    do {                                                                                                               \
        __m128i product;                                                                                               \
        __asm__ volatile("movd %2, %1\n\tpshufd $0, %1, %1\n\tmulps %3, %1\n\taddps %1, %0"                            \
                         : "+x"(sum), "=&x"(product)                                                                   \
                         : "m"(*(p)), "x"(row));                                                                       \
    } while (0)
#define FLIP flip_128
#include "tile.inc.h"

/* ---- 256 bit: AVX2 (integers), FMA (floats), AVX-VNNI ---- */

__attribute__((target("avx2"))) INLINE __m256i flip_256(__m256i v, int32_t first, int32_t wrong) {
    const __m256i word = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(first));
    return _mm256_xor_si256(v, _mm256_srli_epi32(_mm256_cmpeq_epi32(word, _mm256_set1_epi32(wrong)), 31));
}

#define ZERO_256() _mm256_setzero_si256()
#define LOAD_256(p) _mm256_loadu_si256((const __m256i *)(p))
#define STORE_256(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define MULTIPLY_ADD_256(instructions, sum, p, row)                                                                    \
    do {                                                                                                               \
        __m256i spread;                                                                                                \
        __asm__ volatile("vpbroadcastd %2, %1\n\t" instructions                                                        \
                         : "+x"(sum), "=&x"(spread)                                                                    \
                         : "m"(*(p)), "x"(row));                                                                       \
    } while (0)

#define TILE tile_avx2
#define TARGET __attribute__((target("avx2")))
#define REGISTERS 14
#define LANES 8
#define VECTOR __m256i
#define ZERO ZERO_256
#define LOAD LOAD_256
#define STORE STORE_256
#define MULTIPLY_ADD(sum, p, row) MULTIPLY_ADD_256("vpmaddwd %3, %1, %1\n\tvpaddd %1, %0, %0", sum, p, row)
#define FLIP flip_256
#include "tile.inc.h"

#define TILE tile_fma
#define TARGET __attribute__((target("avx2,fma")))
#define REGISTERS 14
#define LANES 8
#define VECTOR __m256i
#define ZERO ZERO_256
#define LOAD LOAD_256
#define STORE STORE_256
#define MULTIPLY_ADD(sum, p, row) MULTIPLY_ADD_256("vfmadd231ps %3, %1, %0", sum, p, row)
#define FLIP flip_256
#include "tile.inc.h"

#ifdef AMDCHECK_HAS_AVXVNNI
#define TILE tile_avx_vnni
#define TARGET __attribute__((target("avx2,avxvnni")))
#define REGISTERS 14
#define LANES 8
#define VECTOR __m256i
#define ZERO ZERO_256
#define LOAD LOAD_256
#define STORE STORE_256
#define MULTIPLY_ADD(sum, p, row) MULTIPLY_ADD_256("%{vex%} vpdpbusd %3, %1, %0", sum, p, row)
#define FLIP flip_256
#include "tile.inc.h"
#endif

/* ---- 512 bit: AVX-512F, AVX512-VNNI, AVX512-BF16. The word is spread by the instruction itself. ---- */

#ifdef AMDCHECK_HAS_AVX512F
__attribute__((target("avx512f"))) INLINE __m512i flip_512(__m512i v, int32_t first, int32_t wrong) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i word = _mm512_add_epi32(lane, _mm512_set1_epi32(first));
    const __mmask16 hit = _mm512_cmpeq_epi32_mask(word, _mm512_set1_epi32(wrong));
    return _mm512_mask_xor_epi32(v, hit, v, _mm512_set1_epi32(1));
}

#define ZERO_512() _mm512_setzero_si512()
#define LOAD_512(p) _mm512_loadu_si512(p)
#define STORE_512(p, v) _mm512_storeu_si512(p, v)
#define FLOAT_512(instruction, sum, p, row)                                                                            \
    __asm__ volatile(instruction " %1%{1to16%}, %2, %0" : "+v"(sum) : "m"(*(p)), "v"(row))
/* vpdpbusd takes its unsigned bytes from a register only. */
#define SPREAD_512(instruction, sum, p, row)                                                                           \
    do {                                                                                                               \
        __m512i spread;                                                                                                \
        __asm__ volatile("vpbroadcastd %2, %1\n\t" instruction " %3, %1, %0"                                           \
                         : "+v"(sum), "=&v"(spread)                                                                    \
                         : "m"(*(p)), "v"(row));                                                                       \
    } while (0)

#define TILE tile_avx512f
#define TARGET __attribute__((target("avx512f")))
#define REGISTERS 30
#define LANES 16
#define VECTOR __m512i
#define ZERO ZERO_512
#define LOAD LOAD_512
#define STORE STORE_512
#define MULTIPLY_ADD(sum, p, row) FLOAT_512("vfmadd231ps", sum, p, row)
#define FLIP flip_512
#include "tile.inc.h"
#endif

#ifdef AMDCHECK_HAS_AVX512VNNI
#define TILE tile_avx512_vnni
#define TARGET __attribute__((target("avx512f,avx512vnni")))
#define REGISTERS 30
#define LANES 16
#define VECTOR __m512i
#define ZERO ZERO_512
#define LOAD LOAD_512
#define STORE STORE_512
#define MULTIPLY_ADD(sum, p, row) SPREAD_512("vpdpbusd", sum, p, row)
#define FLIP flip_512
#include "tile.inc.h"
#endif

#ifdef AMDCHECK_HAS_AVX512BF16
#define TILE tile_avx512_bf16
#define TARGET __attribute__((target("avx512f,avx512bw,avx512bf16")))
#define REGISTERS 30
#define LANES 16
#define VECTOR __m512i
#define ZERO ZERO_512
#define LOAD LOAD_512
#define STORE STORE_512
#define MULTIPLY_ADD(sum, p, row) FLOAT_512("vdpbf16ps", sum, p, row)
#define FLIP flip_512
#include "tile.inc.h"
#endif

const struct amdcheck_kernel amdcheck_isa_kernels[] = {
    {"sse2", AMDCHECK_F32, 14, 4, 16, tile_sse2},
    {"avx2", AMDCHECK_S16, 14, 8, 32, tile_avx2},
    {"fma", AMDCHECK_F32, 14, 8, 16, tile_fma},
#ifdef AMDCHECK_HAS_AVXVNNI
    {"avx_vnni", AMDCHECK_U8S8, 14, 8, 32, tile_avx_vnni},
#endif
#ifdef AMDCHECK_HAS_AVX512F
    {"avx512f", AMDCHECK_F32, 30, 16, 16, tile_avx512f},
#endif
#ifdef AMDCHECK_HAS_AVX512VNNI
    {"avx512_vnni", AMDCHECK_U8S8, 30, 16, 32, tile_avx512_vnni},
#endif
#ifdef AMDCHECK_HAS_AVX512BF16
    {"avx512_bf16", AMDCHECK_BF16, 30, 16, 32, tile_avx512_bf16},
#endif
    {.name = NULL},
};

void amdcheck_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]) {
    __cpuid_count(leaf, subleaf, registers[0], registers[1], registers[2], registers[3]);
}

uint32_t amdcheck_xgetbv(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
