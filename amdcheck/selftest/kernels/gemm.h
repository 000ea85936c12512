/* Matrix products: what the driver, the operands and the list of kernels share. */
#ifndef AMDCHECK_GEMM_H
#define AMDCHECK_GEMM_H

#include "amdcheck_kernels.h"

/* One register tile: c[rows][lanes] (+)= sum over steps of a[rows][step] * b[step][lanes], all in 32-bit words; steps
 * is a multiple of four, and a's rows are as far apart as the driver lays them. `mask` is NULL, or rows * lanes words
 * that are flipped in the accumulators before they leave. */
typedef void amdcheck_gemm_tile(uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c, uint64_t row_bytes,
                                uint64_t add, const uint32_t *mask);

struct amdcheck_gemm {
    const char *name; /* the flag by which the Linux kernel offers the instruction set, as in /proc/cpuinfo */
    enum amdcheck_operands operands;
    uint32_t rows;
    uint32_t lanes;
    uint32_t group; /* numbers in a word: 1, 2 or 4 */
    int32_t limit; /* the largest operand of a */
    amdcheck_gemm_tile *tile;
    amdcheck_gemm_tile *short_tile; /* of four rows; NULL where a tile has no more */
    void (*ports)(uint64_t repeats); /* the same multiply-adds from registers alone, 24 accumulator updates a repeat */
};

void amdcheck_ports_fma(uint64_t repeats);
void amdcheck_ports_avx2(uint64_t repeats);
void amdcheck_ports_avx_vnni(uint64_t repeats);
void amdcheck_ports_avx512f(uint64_t repeats);
void amdcheck_ports_avx512_vnni(uint64_t repeats);
void amdcheck_ports_avx512_bf16(uint64_t repeats);

/* What this library was built with; a NULL name ends the list. On other machines than x86-64 it is empty. */
extern const struct amdcheck_gemm amdcheck_gemms[];
extern const struct amdcheck_gemm amdcheck_hook_gemms[]; /* that misbehave on purpose */

#endif
