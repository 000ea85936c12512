/* One register tile, written once for every instruction set. Defined by the file that includes it:
 *
 *   TILE                        the function's name
 *   TARGET                      the instruction sets that the function may use
 *   REGISTERS, LANES            the shape: accumulators, and 32-bit words in each
 *   VECTOR, ZERO()              the type of an accumulator, and an empty one
 *   LOAD(p), STORE(p, v)        LANES words from and to memory, at any alignment
 *   MULTIPLY_ADD(sum, p, row)   sum += (the word at p, in every lane) * row
 *   FLIP(v, first, wrong)       v with its lowest bit flipped in the lane whose word `first + lane` is `wrong`
 *
 * The accumulators stay in registers from the first step to the last. tests/selftest/test_disassembly.py reads the
 * machine code and fails on stack traffic inside the loop.
 */
TARGET static void TILE(const uint32_t *a, const uint32_t *b, uint32_t steps, int32_t wrong, uint32_t *out) {
    VECTOR sum[REGISTERS];

    UNROLLED for (int r = 0; r < REGISTERS; r++) sum[r] = ZERO();
    for (uint32_t s = 0; s < steps; s++) {
        const VECTOR row = LOAD(b);
        UNROLLED for (int r = 0; r < REGISTERS; r++) MULTIPLY_ADD(sum[r], a + r, row);
        a += REGISTERS;
        b += LANES;
    }
    UNROLLED for (int r = 0; r < REGISTERS; r++) STORE(out + r * LANES, FLIP(sum[r], r * LANES, wrong));
}

#undef TILE
#undef TARGET
#undef REGISTERS
#undef LANES
#undef VECTOR
#undef ZERO
#undef LOAD
#undef STORE
#undef MULTIPLY_ADD
#undef FLIP
