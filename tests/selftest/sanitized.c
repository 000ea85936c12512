/* Runs the kernels that are named over shapes of every kind, between pages that nobody may touch, so that a load or store
 * of assembly beside its operands dies, and a sanitizer sees what the C around it does. Ends with 0 when all was right. */
#define _GNU_SOURCE
#include "amdcheck_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096
#ifndef SHORT_BY /* the guard itself: with so many bytes less of c than there must be, this must die */
#define SHORT_BY 0
#endif

/* Memory of just this size that ends (or begins) where a forbidden page begins (or ends). */
static void *guarded(uint64_t size, int at_end) {
    const uint64_t whole = (size + PAGE - 1) / PAGE * PAGE;
    char *pages = mmap(NULL, whole + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages + PAGE, whole, PROT_READ | PROT_WRITE) != 0)
        abort();
    memset(pages + PAGE, 0xff, whole);
    return pages + PAGE + (at_end ? whole - size : 0);
}

static void give_back(void *memory, uint64_t size) {
    char *page = (char *)((uintptr_t)memory / PAGE * PAGE);
    munmap(page - PAGE, (size + PAGE - 1) / PAGE * PAGE + 2 * PAGE);
}

static void product(const char *name, uint64_t m, uint64_t n, uint64_t k, int at_end) {
    const struct amdcheck_gemm *gemm = amdcheck_find_gemm(name);
    const uint64_t size = amdcheck_gemm_size(gemm), work = amdcheck_gemm_workspace(gemm, m, n, k);
    void *a = guarded(m * k * size, at_end), *b = guarded(k * n * size, at_end), *workspace = guarded(work, at_end);
    uint32_t *c = guarded(4 * m * n - SHORT_BY, at_end), *want = guarded(4 * m * n, at_end), where[2];
    const int64_t last = (int64_t)(m * n) - 1, plants[] = {-1, 0, last / 2, last};

    if (amdcheck_gemm_operands(gemm, m * n + k, m, n, k, a, b, want) != 0)
        abort();
    for (int i = 0; i < 4; i++) {
        amdcheck_gemm_run(gemm, m, n, k, a, b, c, workspace, plants[i]);
        const uint32_t found = amdcheck_differences(c, want, (uint32_t)(m * n), where, 2);
        if (found != (plants[i] >= 0) || (found && where[0] != (uint32_t)plants[i])) {
            printf("%s %lu x %lu x %lu, planted %ld: %u wrong\n", name, m, n, k, plants[i], found);
            exit(1);
        }
    }
    give_back(a, m * k * size), give_back(b, k * n * size), give_back(workspace, work);
    give_back(c, 4 * m * n), give_back(want, 4 * m * n);
}

static void products(const char *name) {
    static const uint64_t few[] = {1, 2, 5, 6, 13, 15, 17, 33}, deep[] = {1, 2, 3, 5, 8, 63, 130},
                          shapes[][3] = {{14, 32, 513}, {169, 33, 259}, {171, 65, 1025}, {2, 4097, 9}, {255, 31, 7}};
    for (int at_end = 0; at_end < 2; at_end++) {
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < 8; j++)
                for (int l = 0; l < 7; l++)
                    product(name, few[i], few[j], deep[l], at_end);
        for (int i = 0; i < 5; i++)
            product(name, shapes[i][0], shapes[i][1], shapes[i][2], at_end);
    }
    amdcheck_time_ports(amdcheck_find_gemm(name), 10);
}

static void tiles(const char *name) {
    const struct amdcheck_kernel *kernel = amdcheck_find(name);
    const uint32_t blocks = 3, rows = amdcheck_registers(kernel), lanes = amdcheck_lanes(kernel);
    const uint32_t steps = amdcheck_steps(kernel), words = blocks * rows * lanes;
    uint32_t *a = guarded(4 * blocks * steps * rows, 1), *b = guarded(4 * blocks * steps * lanes, 1);
    uint32_t *got = guarded(4 * words, 1), *want = guarded(4 * words, 1), where[2];

    amdcheck_operands(kernel, 7, blocks, a, b, want);
    for (int32_t wrong = -1; wrong < (int32_t)words; wrong++) {
        amdcheck_run(kernel, a, b, blocks, wrong, got);
        const uint32_t found = amdcheck_differences(got, want, words, where, 2);
        if (found != (wrong >= 0) || (found && where[0] != (uint32_t)wrong)) {
            printf("%s, planted %d: %u wrong\n", name, wrong, found);
            exit(1);
        }
    }
}

static void memory(int has_avx2) {
    const uint64_t count = 1000;
    double *a = guarded(8 * 1024, 1), *b = guarded(8 * 1024, 1), *c = guarded(8 * 1024, 1);
    uint64_t *words = guarded(8 * count, 1), place;
    struct amdcheck_difference found[2];
    void *at = guarded(256 * 64, 1);

    amdcheck_triad_operands(b, c, 1024);
    for (int64_t wrong = -1; has_avx2 && wrong < 1024; wrong++) {
        amdcheck_time_triad(wrong & 1, a, b, c, 1024, wrong);
        if (amdcheck_triad_differences(a, 1024, &place) != (wrong >= 0) || (wrong >= 0 && place != (uint64_t)wrong))
            exit(1);
    }
    amdcheck_chase_link(at, 256);
    if (amdcheck_chase_differences(at, 256) != 0)
        exit(1);
    amdcheck_time_chase(&at, 264);
    for (uint32_t width = 16; has_avx2 && width <= 32; width *= 2) {
        void *read = guarded(64 * width, 1);
        memset(read, 0, 64 * width);
        if (amdcheck_time_loads(width, read, 64 * width, 3) < 0)
            exit(1);
    }
    for (int pattern = AMDCHECK_WALKING_ONE; pattern <= AMDCHECK_RANDOM_INVERTED; pattern++)
        for (int64_t wrong = -1; wrong < 3; wrong++) {
            amdcheck_pattern_fill(words, count, (enum amdcheck_pattern)pattern, UINT64_MAX - 5, wrong);
            if (amdcheck_pattern_differences(words, count, (enum amdcheck_pattern)pattern, UINT64_MAX - 5, found, 2) !=
                (wrong >= 0))
                exit(1);
        }
    if (amdcheck_bind_memory(0) == 0 && amdcheck_node_of(words) < 0)
        exit(1);
    amdcheck_bind_memory(1023), amdcheck_bind_memory(INT32_MAX), amdcheck_bind_memory(-1);
    const int32_t cpus[2] = {amdcheck_current_cpu(), amdcheck_current_cpu()};
    words[0] = words[8] = 0;
    amdcheck_time_sharing(cpus, &words[0], &words[8], 1000, 1);
    if (words[0] != 1000 || words[8] != 999)
        exit(1);
    amdcheck_time_imul(10), amdcheck_time_add(10), amdcheck_time_nops(10);
}

/* Names of matrix products, then "--", then names of tiles. */
int main(int count, char **names) {
    int i = 1, has_avx2 = 0;
    for (; i < count && strcmp(names[i], "--") != 0; i++) {
        has_avx2 |= strcmp(names[i], "fma") == 0;
        products(names[i]);
    }
    for (i++; i < count; i++)
        tiles(names[i]);
    memory(has_avx2);
    return 0;
}
