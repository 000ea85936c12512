/* Kernels that misbehave on purpose, so that tests can prove what the self-tests notice. No check asks for them. */
#include "amdcheck_kernels.h"

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
