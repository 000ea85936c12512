/* What the processor can do at most, from registers alone: its clock by chains of dependent instructions, and how many
 * multiply-adds its ports take. A measured rate is judged against the ceiling measured beside it, never against a
 * nominal clock, which moves by the millisecond and is not that of wide vectors.
 */
#include "gemm.h"
#include "timing.h"

#define HUNDRED(text) ".rept 100\n\t" text "\n\t.endr\n\t"

/* imul of 32 bits takes three cycles on every Zen and on Intel since 2008; of 64 bits it takes four on Zen 1 (EPYC
 * 7001). A chain of additions with an immediate is folded by some. */
double amdcheck_time_imul(uint64_t repeats) {
    uint32_t value = 3, factor = 5;
    const double start = amdcheck_seconds();
    for (uint64_t i = 0; i < repeats; i++)
        __asm__ volatile(HUNDRED("imul %1, %0") : "+r"(value) : "r"(factor));
    return amdcheck_seconds() - start;
}

/* Additions of registers take one cycle. Where the two chains differ in clock, one of the two facts is wrong here. */
double amdcheck_time_add(uint64_t repeats) {
    uint64_t value = 3, addend = 5;
    const double start = amdcheck_seconds();
    for (uint64_t i = 0; i < repeats; i++)
        __asm__ volatile(HUNDRED("add %1, %0") HUNDRED("add %1, %0") HUNDRED("add %1, %0")
                         : "+r"(value)
                         : "r"(addend));
    return amdcheck_seconds() - start;
}

/* Instructions that do nothing. How many of them a core begins in a cycle is up to its front end alone, which its two
 * threads share: there are fewer while the other one works, even where it leaves the ports free. */
double amdcheck_time_nops(uint64_t repeats) {
    const double start = amdcheck_seconds();
    for (uint64_t i = 0; i < repeats; i++)
        __asm__ volatile(HUNDRED("nopl (%%rax)") : :);
    return amdcheck_seconds() - start;
}

/* Twelve accumulators that do not wait for each other. Register 15 is both factors, 14 and 13 are scratch. */
#define TWELVE ".irp r,0,1,2,3,4,5,6,7,8,9,10,11\n\t"
#define PORTS(name, isa, setup, body)                                                                                  \
    __attribute__((target(isa))) void amdcheck_ports_##name(uint64_t repeats) {                                          \
        __asm__ volatile(setup "\n"                                                                                    \
                               ".p2align 5\n1:\n\t" TWELVE body "\n\t.endr\n\t" TWELVE body "\n\t.endr\n\t"            \
                               "dec %0\n\tjnz 1b\n\tvzeroupper"                                                        \
                         : "+r"(repeats)                                                                               \
                         :                                                                                             \
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",    \
                           "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc");                                         \
    }
/* Zeros everywhere: no operand is denormal, and none makes the arithmetic slower than another. */
#define ZEROS ".irp r,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n\tvxorps %%ymm\\r, %%ymm\\r, %%ymm\\r\n\t.endr"

PORTS(fma, "avx2,fma", ZEROS, "vfmadd231ps %%ymm15, %%ymm15, %%ymm\\r")
PORTS(avx2, "avx2", ZEROS,
      "vpmaddubsw %%ymm15, %%ymm15, %%ymm14\n\tvpmaddwd %%ymm15, %%ymm14, %%ymm14\n\tvpaddd %%ymm14, %%ymm\\r, %%ymm\\r")
#ifdef AMDCHECK_HAS_AVXVNNI
PORTS(avx_vnni, "avx2", ZEROS, "%{vex%} vpdpbusd %%ymm15, %%ymm15, %%ymm\\r")
#endif
#ifdef AMDCHECK_HAS_AVX512F
PORTS(avx512f, "avx512f", ZEROS, "vfmadd231ps %%zmm15, %%zmm15, %%zmm\\r")
#endif
#ifdef AMDCHECK_HAS_AVX512VNNI
PORTS(avx512_vnni, "avx512f", ZEROS, "vpdpbusd %%zmm15, %%zmm15, %%zmm\\r")
#endif
#ifdef AMDCHECK_HAS_AVX512BF16
PORTS(avx512_bf16, "avx512f", ZEROS, "vdpbf16ps %%zmm15, %%zmm15, %%zmm\\r")
#endif

double amdcheck_time_ports(const struct amdcheck_gemm *gemm, uint64_t repeats) {
    const double start = amdcheck_seconds();
    gemm->ports(repeats);
    return amdcheck_seconds() - start;
}
