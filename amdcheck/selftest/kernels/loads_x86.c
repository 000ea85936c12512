/* What a load costs that straddles two cache lines: plain loads over a buffer that lies in the first-level cache. */
#define _GNU_SOURCE
#include "amdcheck_kernels.h"
#include "timing.h"

/* Eight loads of `width` bytes, one behind the other, into eight registers. */
#define LOAD_EIGHT(instruction, width, register)                                                                       \
    instruction " 0*" #width "(%0), %%" #register "0\n\t" instruction " 1*" #width "(%0), %%" #register "1\n\t"        \
    instruction " 2*" #width "(%0), %%" #register "2\n\t" instruction " 3*" #width "(%0), %%" #register "3\n\t"        \
    instruction " 4*" #width "(%0), %%" #register "4\n\t" instruction " 5*" #width "(%0), %%" #register "5\n\t"        \
    instruction " 6*" #width "(%0), %%" #register "6\n\t" instruction " 7*" #width "(%0), %%" #register "7"
#define CLOBBERS "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "memory"

static void loads_128(const char *p, const char *end) {
    for (; p < end; p += 8 * 16)
        __asm__ volatile(LOAD_EIGHT("movups", 16, xmm) : : "r"(p) : CLOBBERS);
}

__attribute__((target("avx"))) static void loads_256(const char *p, const char *end) {
    for (; p < end; p += 8 * 32)
        __asm__ volatile(LOAD_EIGHT("vmovups", 32, ymm) : : "r"(p) : CLOBBERS);
}

#ifdef AMDCHECK_HAS_AVX512F
__attribute__((target("avx512f"))) static void loads_512(const char *p, const char *end) {
    for (; p < end; p += 8 * 64)
        __asm__ volatile(LOAD_EIGHT("vmovups", 64, zmm) : : "r"(p) : CLOBBERS);
}
#endif

double amdcheck_time_loads(uint32_t width, const void *base, uint32_t bytes, uint32_t passes) {
    void (*loads)(const char *, const char *) = width == 16 ? loads_128 : width == 32 ? loads_256 : 0;
#ifdef AMDCHECK_HAS_AVX512F
    loads = width == 64 ? loads_512 : loads;
#endif
    if (loads == 0)
        return -1;
    const double start = amdcheck_seconds();
    for (uint32_t pass = 0; pass < passes; pass++)
        loads(base, (const char *)base + bytes);
    return amdcheck_seconds() - start;
}
