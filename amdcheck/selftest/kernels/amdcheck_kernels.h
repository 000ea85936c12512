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

/* Seconds for reading `bytes` (a multiple of 8 * width) from `base`, `passes` times, by loads of `width` bytes: 16, 32
 * (AVX) or 64 (AVX-512F). -1 when this library has no such loads. */
AMDCHECK_API double amdcheck_time_loads(uint32_t width, const void *base, uint32_t bytes, uint32_t passes);

/* The CPU that the caller runs on at this moment, or -1. */
AMDCHECK_API int32_t amdcheck_current_cpu(void);

#endif
