/* Kernels that misbehave on purpose, so that tests can prove what the self-tests notice. No check asks for them. */
#include "gemm.h"

#include <stddef.h>

/* The right answer of the smallest tile: one register, one lane. */
static uint32_t product_sum(const uint32_t *a, const uint32_t *b, uint32_t steps) {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < steps; s++)
        sum += (uint32_t)((int32_t)(int16_t)a[s] * (int16_t)b[s] + (int32_t)(int16_t)(a[s] >> 16) * (int16_t)(b[s] >> 16));
    return sum;
}

/* An instruction that no CPU has. */
static void tile_illegal(const uint32_t *a, const uint32_t *b, uint32_t steps, int32_t wrong, uint32_t *out) {
    (void)a, (void)b, (void)steps, (void)wrong, (void)out;
    __asm__ volatile("ud2");
}

/* An answer that is always one bit off. */
static void tile_wrong(const uint32_t *a, const uint32_t *b, uint32_t steps, int32_t wrong, uint32_t *out) {
    *out = product_sum(a, b, steps) ^ 1u ^ (wrong == 0 ? 1u : 0u);
}

/* The right answer, whatever was planted: a negative control that does nothing. */
static void tile_blind(const uint32_t *a, const uint32_t *b, uint32_t steps, int32_t wrong, uint32_t *out) {
    (void)wrong;
    *out = product_sum(a, b, steps);
}

/* A kernel that never ends. */
static void tile_endless(const uint32_t *a, const uint32_t *b, uint32_t steps, int32_t wrong, uint32_t *out) {
    (void)a, (void)b, (void)steps, (void)wrong, (void)out;
    for (;;)
        __asm__ volatile("pause");
}

/* A store to an address that nothing is mapped at. */
static void tile_stray(const uint32_t *a, const uint32_t *b, uint32_t steps, int32_t wrong, uint32_t *out) {
    (void)a, (void)b, (void)steps, (void)wrong, (void)out;
    uint32_t *nowhere = (uint32_t *)(uintptr_t)64;
    __asm__ volatile("" : "+r"(nowhere)); /* or the compiler sees where it points and warns */
    *nowhere = 1;
}

const struct amdcheck_kernel amdcheck_hook_kernels[] = {
    {"hook-illegal", AMDCHECK_S16, 1, 1, 32, tile_illegal}, {"hook-wrong", AMDCHECK_S16, 1, 1, 32, tile_wrong},
    {"hook-blind", AMDCHECK_S16, 1, 1, 32, tile_blind},     {"hook-endless", AMDCHECK_S16, 1, 1, 32, tile_endless},
    {"hook-stray", AMDCHECK_S16, 1, 1, 32, tile_stray},     {.name = NULL},
};

/* A product of bytes, one number at a time, that gets the wrong bits of `mask`, or keeps them away. */
static void product(uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c, uint64_t add, uint32_t flip) {
    uint32_t sum = add ? *c : 0;
    for (uint64_t s = 0; s < steps; s++)
        for (int byte = 0; byte < 4; byte++)
            sum += (uint32_t)((int32_t)(a[s] >> 8 * byte & 0xff) * (int8_t)(b[16 * s] >> 8 * byte));
    *c = sum ^ flip;
}

static void tile_of(uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c, uint64_t row_bytes,
                    uint64_t add, const uint32_t *mask, uint32_t first_lane_is) {
    (void)row_bytes; /* one row */
    for (int lane = 0; lane < 16; lane++)
        product(steps, a, b + lane, c + lane, add, (mask != NULL ? mask[lane] : 0) ^ (lane == 0 ? first_lane_is : 0));
}

static void gemm_wrong(uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c, uint64_t row_bytes,
                       uint64_t add, const uint32_t *mask) {
    tile_of(steps, a, b, c, row_bytes, add, mask, 4);
}

static void gemm_blind(uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c, uint64_t row_bytes,
                       uint64_t add, const uint32_t *mask) {
    (void)mask;
    tile_of(steps, a, b, c, row_bytes, add, NULL, 0);
}

static void gemm_illegal(uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c, uint64_t row_bytes,
                         uint64_t add, const uint32_t *mask) {
    (void)steps, (void)a, (void)b, (void)c, (void)row_bytes, (void)add, (void)mask;
    __asm__ volatile("ud2");
}

const struct amdcheck_gemm amdcheck_hook_gemms[] = {
    {"hook-wrong", AMDCHECK_U8S8, 1, 16, 4, 255, gemm_wrong, NULL, amdcheck_ports_avx2},
    {"hook-blind", AMDCHECK_U8S8, 1, 16, 4, 255, gemm_blind, NULL, amdcheck_ports_avx2},
    {"hook-illegal", AMDCHECK_U8S8, 1, 16, 4, 255, gemm_illegal, NULL, amdcheck_ports_avx2},
    {.name = NULL},
};
