/* The triad of STREAM, a = b + 3 * c, with plain stores and with stores that go past the caches. */
#include "amdcheck_kernels.h"
#include "timing.h"

#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,fma")))

/* Elements first..last by plain stores: each line of a is read before it is written. */
AVX2 static void triad_plain(double *a, const double *b, const double *c, uint64_t first, uint64_t last) {
    const __m256d factor = _mm256_set1_pd(3);
    for (uint64_t i = first; i < last; i += 8) {
        _mm256_store_pd(a + i, _mm256_fmadd_pd(factor, _mm256_load_pd(c + i), _mm256_load_pd(b + i)));
        _mm256_store_pd(a + i + 4, _mm256_fmadd_pd(factor, _mm256_load_pd(c + i + 4), _mm256_load_pd(b + i + 4)));
    }
}

AVX2 static void triad_streaming(double *a, const double *b, const double *c, uint64_t first, uint64_t last) {
    const __m256d factor = _mm256_set1_pd(3);
    for (uint64_t i = first; i < last; i += 8) {
        _mm256_stream_pd(a + i, _mm256_fmadd_pd(factor, _mm256_load_pd(c + i), _mm256_load_pd(b + i)));
        _mm256_stream_pd(a + i + 4, _mm256_fmadd_pd(factor, _mm256_load_pd(c + i + 4), _mm256_load_pd(b + i + 4)));
    }
    _mm_sfence();
}

/* The eight elements that hold `wrong`, by vectors one of whose lanes is flipped before the store. */
AVX2 static void triad_flipped(double *a, const double *b, const double *c, uint64_t first, uint64_t wrong) {
    const __m256d factor = _mm256_set1_pd(3);
    for (uint64_t i = first; i < first + 8; i += 4) {
        const __m256d value = _mm256_fmadd_pd(factor, _mm256_load_pd(c + i), _mm256_load_pd(b + i));
        const __m256i place = _mm256_add_epi64(_mm256_set1_epi64x((int64_t)i), _mm256_setr_epi64x(0, 1, 2, 3));
        const __m256i hit = _mm256_cmpeq_epi64(place, _mm256_set1_epi64x((int64_t)wrong));
        _mm256_store_pd(a + i, _mm256_xor_pd(value, _mm256_castsi256_pd(_mm256_srli_epi64(hit, 63))));
    }
}

double amdcheck_time_triad(int32_t non_temporal, double *a, const double *b, const double *c, uint64_t count,
                           int64_t wrong) {
    void (*const triad)(double *, const double *, const double *, uint64_t, uint64_t) =
        non_temporal ? triad_streaming : triad_plain;
    const double start = amdcheck_seconds();
    if (wrong < 0) {
        triad(a, b, c, 0, count);
    } else {
        const uint64_t block = (uint64_t)wrong / 8 * 8;
        triad(a, b, c, 0, block);
        triad_flipped(a, b, c, block, (uint64_t)wrong);
        triad(a, b, c, block + 8, count);
    }
    return amdcheck_seconds() - start;
}
