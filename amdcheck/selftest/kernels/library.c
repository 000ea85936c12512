/* The plain C API: finds kernels by name and runs them block by block. */
#define _GNU_SOURCE
#include "gemm.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>

#ifndef AMDCHECK_X86_64
const struct amdcheck_kernel amdcheck_isa_kernels[] = {{.name = NULL}};
const struct amdcheck_kernel amdcheck_hook_kernels[] = {{.name = NULL}};

const struct amdcheck_gemm amdcheck_gemms[] = {{.name = NULL}};
const struct amdcheck_gemm amdcheck_hook_gemms[] = {{.name = NULL}};

double amdcheck_time_loads(uint32_t width, const void *base, uint32_t bytes, uint32_t passes) {
    (void)width, (void)base, (void)bytes, (void)passes;
    return -1;
}

double amdcheck_time_triad(int32_t non_temporal, double *a, const double *b, const double *c, uint64_t count,
                           int64_t wrong) {
    (void)non_temporal, (void)a, (void)b, (void)c, (void)count, (void)wrong;
    return -1;
}

double amdcheck_time_imul(uint64_t repeats) { return (void)repeats, -1; }
double amdcheck_time_add(uint64_t repeats) { return (void)repeats, -1; }
double amdcheck_time_nops(uint64_t repeats) { return (void)repeats, -1; }
double amdcheck_time_ports(const struct amdcheck_gemm *gemm, uint64_t repeats) { return (void)gemm, (void)repeats, -1; }

void amdcheck_cpuid(uint32_t leaf, uint32_t subleaf, uint32_t registers[4]) {
    (void)leaf, (void)subleaf;
    memset(registers, 0, 4 * sizeof *registers);
}
uint32_t amdcheck_xgetbv(void) { return 0; }

uint64_t amdcheck_gemm_workspace(const struct amdcheck_gemm *gemm, uint64_t m, uint64_t n, uint64_t k) {
    return (void)gemm, (void)m, (void)n, (void)k, 0;
}
double amdcheck_gemm_run(const struct amdcheck_gemm *gemm, uint64_t m, uint64_t n, uint64_t k, const void *a,
                         const void *b, uint32_t *c, void *workspace, int64_t wrong) {
    (void)gemm, (void)m, (void)n, (void)k, (void)a, (void)b, (void)c, (void)workspace, (void)wrong;
    return -1;
}
#endif

static const struct amdcheck_kernel *find_in(const struct amdcheck_kernel *kernels, const char *name) {
    for (; kernels->name != NULL; kernels++)
        if (strcmp(kernels->name, name) == 0)
            return kernels;
    return NULL;
}

const struct amdcheck_kernel *amdcheck_find(const char *name) {
    const struct amdcheck_kernel *kernel = find_in(amdcheck_isa_kernels, name);
    return kernel != NULL ? kernel : find_in(amdcheck_hook_kernels, name);
}

uint32_t amdcheck_registers(const struct amdcheck_kernel *kernel) { return kernel->registers; }
uint32_t amdcheck_lanes(const struct amdcheck_kernel *kernel) { return kernel->lanes; }
uint32_t amdcheck_steps(const struct amdcheck_kernel *kernel) { return kernel->steps; }

void amdcheck_run(const struct amdcheck_kernel *kernel, const uint32_t *a, const uint32_t *b, uint32_t blocks,
                  int32_t wrong, uint32_t *out) {
    const uint32_t words = kernel->registers * kernel->lanes;
    for (uint32_t block = 0; block < blocks; block++) {
        const int32_t here = wrong / (int32_t)words == (int32_t)block && wrong >= 0 ? wrong % (int32_t)words : -1;
        kernel->tile(a, b, kernel->steps, here, out);
        a += kernel->steps * kernel->registers;
        b += kernel->steps * kernel->lanes;
        out += words;
    }
}

static const struct amdcheck_gemm *find_gemm_in(const struct amdcheck_gemm *gemms, const char *name) {
    for (; gemms->name != NULL; gemms++)
        if (strcmp(gemms->name, name) == 0)
            return gemms;
    return NULL;
}

const struct amdcheck_gemm *amdcheck_find_gemm(const char *name) {
    const struct amdcheck_gemm *gemm = find_gemm_in(amdcheck_gemms, name);
    return gemm != NULL ? gemm : find_gemm_in(amdcheck_hook_gemms, name);
}

uint32_t amdcheck_gemm_size(const struct amdcheck_gemm *gemm) { return 4 / gemm->group; }

uint64_t amdcheck_ports_operations(const struct amdcheck_gemm *gemm) {
    return UINT64_C(2) * 24 * (gemm->lanes / 2) * gemm->group; /* two vectors make up a tile's lanes */
}

int32_t amdcheck_current_cpu(void) { return sched_getcpu(); }
