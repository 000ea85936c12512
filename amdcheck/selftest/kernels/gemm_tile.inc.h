/* The tiles of a matrix product, written once for every instruction set. Defined by the file that includes it:
 *
 *   TILE, SHORT_TILE    the functions' names; the second one, of four rows, is not needed where the first has no more
 *   TARGET              the instruction sets that the functions may use
 *   ROWS(X)             X(i, low, high) for each row i and its two accumulators
 *   VECTOR, BYTES       the name of a vector register without its number, and its size in bytes
 *   B_LOW, B_HIGH       the registers that hold a step of b
 *   STEP(s, i, low, high)  multiply word s of row i of a with both vectors of b into the two accumulators
 *   SETUP               what STEP needs in registers before the first step
 *   XOR, ADD            the instructions that flip bits of an accumulator and add to it
 *   CLOBBERS            every vector register
 *   TALL                if the rows of c are too many to be fetched at once: they would fill the buffers that wait for
 *                       memory, and a and b wait behind them
 *
 * All of it is assembly, from the first step to the store: no compiler can move an accumulator out of its register, and
 * which instructions are judged does not depend on who built the library.
 */
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define REG(number) "%%" VECTOR #number

#define CLEAR(i, low, high) XOR " " REG(low) ", " REG(low) ", " REG(low) "\n\t" XOR " " REG(high) ", " REG(high) ", " REG(high) "\n\t"
#define STEP_0(i, low, high) STEP(0, i, low, high)
#define STEP_1(i, low, high) STEP(1, i, low, high)
#define STEP_2(i, low, high) STEP(2, i, low, high)
#define STEP_3(i, low, high) STEP(3, i, low, high)
#define LOAD_B(s)                                                                                                      \
    "vmovups 2*" TEXT(BYTES) "*" #s "(%[b]), " B_LOW "\n\tvmovups 2*" TEXT(BYTES) "*" #s "+" TEXT(BYTES) "(%[b]), "    \
    B_HIGH "\n\t"
#define PLANT(i, low, high)                                                                                            \
    XOR " 2*" TEXT(BYTES) "*" #i "(%[mask]), " REG(low) ", " REG(low) "\n\t"                                           \
    XOR " 2*" TEXT(BYTES) "*" #i "+" TEXT(BYTES) "(%[mask]), " REG(high) ", " REG(high) "\n\t"
#define STORE_ROW(i, low, high)                                                                                        \
    "vmovups " REG(low) ", (%[c])\n\tvmovups " REG(high) ", " TEXT(BYTES) "(%[c])\n\tadd %[row], %[c]\n\t"
#define ADD_ROW(i, low, high)                                                                                          \
    ADD " (%[d]), " REG(low) ", " REG(low) "\n\t" ADD " " TEXT(BYTES) "(%[d]), " REG(high) ", " REG(high) "\n\t"       \
    "add %[row], %[d]\n\t"
#define TOUCH_ROW(i, low, high) "prefetcht0 (%[d])\n\tprefetcht0 " TEXT(BYTES) "(%[d])\n\tadd %[row], %[d]\n\t"

#ifdef TALL
#define TOUCH_FIRST(i, low, high)
#define TOUCH_MEANWHILE TOUCH_ROW(0, 0, 1) /* a row each quad, and then those of the next tiles, which lie below */
#else
#define TOUCH_FIRST TOUCH_ROW
#define TOUCH_MEANWHILE
#endif

#define DEFINE_TILE(NAME, EACH_ROW)                                                                                    \
TARGET static void NAME(uint64_t steps, const uint32_t *a, const uint32_t *b, uint32_t *c, uint64_t row_bytes,         \
                        uint64_t add, const uint32_t *mask) {                                                          \
    uint32_t *d = c;                                                                                                   \
    uint64_t quads = steps / 4;                                                                                        \
    __asm__ volatile(                                                                                                  \
        EACH_ROW(CLEAR) SETUP EACH_ROW(TOUCH_FIRST)                                                                    \
        ".p2align 5\n"                                                                                                 \
        "1:\n\t"                                                                                                       \
        LOAD_B(0) EACH_ROW(STEP_0)                                                                                     \
        LOAD_B(1) EACH_ROW(STEP_1)                                                                                     \
        LOAD_B(2) EACH_ROW(STEP_2)                                                                                     \
        LOAD_B(3) EACH_ROW(STEP_3)                                                                                     \
        TOUCH_MEANWHILE                                                                                                \
        "add $4*4, %[a]\n\t"                                                                                           \
        "add $4*2*" TEXT(BYTES) ", %[b]\n\t"                                                                           \
        "dec %[quads]\n\t"                                                                                             \
        "jnz 1b\n\t"                                                                                                   \
        "test %[add], %[add]\n\t"                                                                                      \
        "jz 2f\n\t"                                                                                                    \
        "mov %[c], %[d]\n\t"                                                                                           \
        EACH_ROW(ADD_ROW)                                                                                              \
        "2:\n\t"                                                                                                       \
        "test %[mask], %[mask]\n\t"                                                                                    \
        "jz 3f\n\t"                                                                                                    \
        EACH_ROW(PLANT)                                                                                                \
        "3:\n\t"                                                                                                       \
        EACH_ROW(STORE_ROW)                                                                                            \
        "vzeroupper"                                                                                                   \
        : [a] "+r"(a), [b] "+r"(b), [c] "+r"(c), [d] "+r"(d), [quads] "+r"(quads)                                      \
        : [row] "r"(row_bytes), [add] "r"(add), [mask] "r"(mask)                                                       \
        : CLOBBERS, "cc", "memory");                                                                                   \
}

DEFINE_TILE(TILE, ROWS)
#ifdef SHORT_TILE
DEFINE_TILE(SHORT_TILE, ROWS_4)
#endif

#undef TILE
#undef SHORT_TILE
#undef TARGET
#undef ROWS
#undef VECTOR
#undef BYTES
#undef B_LOW
#undef B_HIGH
#undef STEP
#undef SETUP
#undef XOR
#undef ADD
#undef CLOBBERS
#undef TEXT_
#undef TEXT
#undef REG
#undef CLEAR
#undef STEP_0
#undef STEP_1
#undef STEP_2
#undef STEP_3
#undef LOAD_B
#undef PLANT
#undef STORE_ROW
#undef ADD_ROW
#undef TOUCH_ROW
#undef TOUCH_FIRST
#undef TOUCH_MEANWHILE
#undef TALL
#undef DEFINE_TILE
