/* The native kernels of the self-tests, seen from outside (Python loads them with ctypes).
 *
 * A kernel computes one register tile a block, the inner loop of a matrix product:
 *
 *     out[block][r][l] = sum over s of a[block][s][r] * b[block][s][l]       r < registers, l < lanes, s < steps
 *
 * Every element of a, b and out is one 32-bit word: a float, two 16-bit or four 8-bit numbers in a and b, a float or a
 * 32-bit integer in out. The operands are integers so small, or the sums so wrapped, that the right answer is exact and
 * does not depend on the order of the additions.
 */
#ifndef AMDCHECK_KERNELS_H
#define AMDCHECK_KERNELS_H

#include <stdint.h>

struct amdcheck_gemm;

#define AMDCHECK_API __attribute__((visibility("default")))

enum amdcheck_operands {
    AMDCHECK_F32, /* float x float, summed in float: integers below 2^24 */
    AMDCHECK_S16, /* two int16 x int16, summed modulo 2^32 */
    AMDCHECK_U8S8, /* four uint8 x int8, summed modulo 2^32 */
    AMDCHECK_BF16 /* two bfloat16 x bfloat16, summed in float: integers below 2^24 */
};

/* `wrong` is the negative control: the word of `out` whose lowest bit the kernel flips in its vector register before
 * it is stored, or -1. An honest run executes the same instructions with a mask of zero. */
typedef void amdcheck_tile(const uint32_t *a, const uint32_t *b, uint32_t steps, int32_t wrong, uint32_t *out);

struct amdcheck_kernel {
    const char *name; /* the flag by which the Linux kernel offers the instruction set, as in /proc/cpuinfo */
    enum amdcheck_operands operands;
    uint32_t registers;
    uint32_t lanes;
    uint32_t steps;
    amdcheck_tile *tile;
};

/* What this library was built with; a NULL name ends each list. Hooks are kernels that misbehave on purpose, so that
 * tests can prove what the self-tests notice. */
extern const struct amdcheck_kernel amdcheck_isa_kernels[];
extern const struct amdcheck_kernel amdcheck_hook_kernels[];

/* The kernel of that name, or NULL when this library was built without it. Valid as long as the library is loaded. */
AMDCHECK_API const struct amdcheck_kernel *amdcheck_find(const char *name);

/* The number of words of one block: steps * registers in a, steps * lanes in b, registers * lanes in out. */
AMDCHECK_API uint32_t amdcheck_registers(const struct amdcheck_kernel *kernel);
AMDCHECK_API uint32_t amdcheck_lanes(const struct amdcheck_kernel *kernel);
AMDCHECK_API uint32_t amdcheck_steps(const struct amdcheck_kernel *kernel);

/* Fill the operands of `blocks` blocks from a seed, and the right answers, computed one integer at a time. */
AMDCHECK_API void amdcheck_operands(const struct amdcheck_kernel *kernel, uint64_t seed, uint32_t blocks, uint32_t *a,
                                    uint32_t *b, uint32_t *want);

/* Run the kernel over `blocks` blocks; `wrong` counts words over all of out. */
AMDCHECK_API void amdcheck_run(const struct amdcheck_kernel *kernel, const uint32_t *a, const uint32_t *b,
                               uint32_t blocks, int32_t wrong, uint32_t *out);

/* Compare word by word, without vector instructions. Returns how many differ; where[] gets the first `capacity`. */
AMDCHECK_API uint32_t amdcheck_differences(const uint32_t *got, const uint32_t *want, uint32_t words, uint32_t *where,
                                           uint32_t capacity);

/* A matrix product as inference computes it: c[m][n] = a[m][k] * b[k][n], all row-major and without gaps, for any m, n, k
 * above zero with k < 2^24, so that sums are exact, and m * n < 2^32, so that words can be counted. a and b hold floats,
 * bfloat16, or unsigned bytes (a) and signed bytes (b); c holds floats or 32-bit integers. NULL when this
 * library was built without the kernel for that flag of /proc/cpuinfo. */
AMDCHECK_API const struct amdcheck_gemm *amdcheck_find_gemm(const char *name);

/* Bytes of one number of a and b: 4, 2 or 1. */
AMDCHECK_API uint32_t amdcheck_gemm_size(const struct amdcheck_gemm *gemm);

/* Fill a and b from a seed and `want` with the right answers. 0, or -1 when memory ran out or m, n, k are too large. */
AMDCHECK_API int32_t amdcheck_gemm_operands(const struct amdcheck_gemm *gemm, uint64_t seed, uint64_t m, uint64_t n,
                                            uint64_t k, void *a, void *b, uint32_t *want);

/* Bytes of memory that amdcheck_gemm works in. */
AMDCHECK_API uint64_t amdcheck_gemm_workspace(const struct amdcheck_gemm *gemm, uint64_t m, uint64_t n, uint64_t k);

/* Compute c, and return how many seconds that took. `wrong` as above, counted over all of c. */
AMDCHECK_API double amdcheck_gemm_run(const struct amdcheck_gemm *gemm, uint64_t m, uint64_t n, uint64_t k,
                                      const void *a, const void *b, uint32_t *c, void *workspace, int64_t wrong);

/* Operations (additions and multiplications) in one repeat of amdcheck_time_ports. */
AMDCHECK_API uint64_t amdcheck_ports_operations(const struct amdcheck_gemm *gemm);

/* Seconds for `repeats` times 24 of this product's multiply-adds on registers alone: what its ports can do at most. */
AMDCHECK_API double amdcheck_time_ports(const struct amdcheck_gemm *gemm, uint64_t repeats);

/* Seconds for `repeats` times 300 cycles of dependent instructions: 100 imul of three cycles, or 300 add of one. */
AMDCHECK_API double amdcheck_time_imul(uint64_t repeats);
AMDCHECK_API double amdcheck_time_add(uint64_t repeats);

/* Seconds for `repeats` times 100 instructions that do nothing. */
AMDCHECK_API double amdcheck_time_nops(uint64_t repeats);

/* Seconds for reading `bytes` (a multiple of 8 * width) from `base`, `passes` times, by loads of `width` bytes: 16, 32
 * (AVX) or 64 (AVX-512F). -1 when this library has no such loads. */
AMDCHECK_API double amdcheck_time_loads(uint32_t width, const void *base, uint32_t bytes, uint32_t passes);

/* a[i] = b[i] + 3 * c[i] over `count` doubles, a multiple of eight, all 64-byte aligned: seconds, or -1 where the library
 * has no such loop. Stores are plain or non-temporal; in element `wrong` (or -1: none) the lowest bit is flipped. */
AMDCHECK_API double amdcheck_time_triad(int32_t non_temporal, double *a, const double *b, const double *c,
                                        uint64_t count, int64_t wrong);

/* Integers into b and c, so that the triad is exact. */
AMDCHECK_API void amdcheck_triad_operands(double *b, double *c, uint64_t count);

/* How many elements of a are not b + 3 c, the first of them in *where. */
AMDCHECK_API uint64_t amdcheck_triad_differences(const double *a, uint64_t count, uint64_t *where);

/* Link `lines` lines of 64 bytes (a power of two, at least four) into one cycle in an order that looks random. */
AMDCHECK_API void amdcheck_chase_link(void *base, uint64_t lines);

/* How many of these lines are not linked as amdcheck_chase_link links them. */
AMDCHECK_API uint64_t amdcheck_chase_differences(const void *base, uint64_t lines);

/* Seconds for `hops` hops (a multiple of eight) from *position along the links; *position is where they end. */
AMDCHECK_API double amdcheck_time_chase(void **position, uint64_t hops);

/* Two threads, each pinned to a CPU, count up a place of their own by atomic increments; the second leaves out `missed`
 * of them. Seconds of the slower one, or -1 when a thread could not be started or pinned. */
AMDCHECK_API double amdcheck_time_sharing(const int32_t cpus[2], uint64_t *first, uint64_t *second,
                                          uint64_t increments, uint64_t missed);

enum amdcheck_pattern {
    AMDCHECK_WALKING_ONE,
    AMDCHECK_WALKING_ZERO,
    AMDCHECK_CHECKERBOARD,
    AMDCHECK_PLACE,
    AMDCHECK_RANDOM,
    AMDCHECK_RANDOM_INVERTED
};

struct amdcheck_difference {
    uint64_t place, got, want;
};

/* Fill memory with a pattern; the lowest bit of word `wrong` (or -1: none) is flipped. */
AMDCHECK_API void amdcheck_pattern_fill(uint64_t *words, uint64_t count, enum amdcheck_pattern pattern, uint64_t seed,
                                        int64_t wrong);

/* How many words do not hold the pattern; found[] gets the first `capacity`. */
AMDCHECK_API uint64_t amdcheck_pattern_differences(const uint64_t *words, uint64_t count, enum amdcheck_pattern pattern,
                                                   uint64_t seed, struct amdcheck_difference *found,
                                                   uint64_t capacity);

/* From now on this thread's new pages come from that NUMA node alone. 0, or -1: refused. */
AMDCHECK_API int32_t amdcheck_bind_memory(int32_t node);

/* The NUMA node of a page that was touched, or -1 when the kernel does not say. */
AMDCHECK_API int32_t amdcheck_node_of(const void *address);

/* The CPU that the caller runs on at this moment, or -1. */
AMDCHECK_API int32_t amdcheck_current_cpu(void);

/* What the processor says of itself: EAX, EBX, ECX, EDX of a leaf. And the lower half of XCR0, which may be asked for
 * only where CPUID says that the operating system has enabled it. Zeros on other machines than x86-64. */
AMDCHECK_API void amdcheck_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]);
AMDCHECK_API uint32_t amdcheck_xgetbv(void);

#endif
