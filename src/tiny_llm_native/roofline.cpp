// Measures how fast this processor reads memory and multiplies: given.
#include "matmul/instructions.h"

#if defined(TINY_LLM_HAS_TILES)
#include "matmul/panels_tiles.h"
#elif defined(__AVX512BF16__)
#include <immintrin.h>
#endif

using namespace tiny_llm;

namespace {

// Independent sums, so that no instruction waits for the previous one. AVX2 has registers for 12 sums and two factors.
#if defined(__AVX__) && !defined(__AVX512F__)
constexpr int CHAINS = 12;
#else
constexpr int CHAINS = 16;
#endif
#if defined(__AVX512BF16__)
constexpr int PAIRED = 2 * 2 * CHAINS * 16;
#else
constexpr int PAIRED = 0;
#endif
#if defined(TINY_LLM_HAS_TILES)
constexpr int TILED = 2 * 4 * 16 * 16 * 32;
#else
constexpr int TILED = 0;
#endif
#if defined(TINY_LLM_HAS_INT8)
constexpr int DOTS = 2 * 4 * CHAINS * WIDTH;
#else
constexpr int DOTS = 0;
#endif

struct ReadArguments {
    In<float> x;
    Out<float> out;  // one result per part; it depends on the whole part, so that the compiler keeps all reads
    Threads threads;
};

struct MultiplyArguments {
    Out<float> out;         // one result per thread
    Out<float> operations;  // how many operations a thread does in a round
    int64_t rounds;
    Threads threads;
};

template <typename Step>
void repeat(const MultiplyArguments& call, int64_t operations, Step step) {
    *call.operations.as<float>() = operations;
    call.threads(call.threads.count, 1, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; part++) call.out.as<float>()[part] = step(call.rounds);
    });
}

}  // namespace

// Reads every byte of the input once.
KERNEL(read_bytes, ReadArguments) {
    const int64_t count = call.x.size() / (4 * WIDTH), parts = call.out.size();
    call.threads(parts, 1, [&](int64_t begin, int64_t end) {
        for (int64_t part = begin; part < end; part++) {
            floats a = {}, b = {}, c = {}, d = {};
            const float* from = call.x.as<float>() + count * part / parts * 4 * WIDTH;
            const float* last = call.x.as<float>() + count * (part + 1) / parts * 4 * WIDTH;
            for (; from < last; from += 4 * WIDTH) {
                for (int i = 0; i < 4 * WIDTH; i += CACHE_LINE) __builtin_prefetch(from + AHEAD + i);
                a = max(a, load(from)), b = max(b, load(from + WIDTH));
                c = max(c, load(from + 2 * WIDTH)), d = max(d, load(from + 3 * WIDTH));
            }
            call.out.as<float>()[part] = max(max(max(a, b), max(c, d)));
        }
    });
}

// Does some rounds of multiplications and additions in float32 on each thread.
KERNEL(multiply_add_float32, MultiplyArguments) {
    repeat(call, 2 * CHAINS * WIDTH, [](int64_t rounds) {
        floats sums[CHAINS], x = splat(1e-3f), y = splat(0.5f);
        for (int j = 0; j < CHAINS; j++) sums[j] = splat(float(j));  // equal chains would be computed once
        for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = sums[j] * y + x;
        }
        for (int j = 1; j < CHAINS; j++) sums[0] += sums[j];
        return sum(sums[0]);
    });
}

// Does such rounds with pairs of bfloat16 if the processor has an instruction for pairs, otherwise no operations.
KERNEL(multiply_add_bfloat16, MultiplyArguments) {
    repeat(call, PAIRED, [](int64_t rounds) {
#if defined(__AVX512BF16__)
        __m512 sums[CHAINS];
        for (int j = 0; j < CHAINS; j++) sums[j] = _mm512_set1_ps(float(j));
        const __m512bh x = (__m512bh)_mm512_set1_epi32(0x3a003a00), y = (__m512bh)_mm512_set1_epi32(0x3f003f00);
        for (int64_t i = 0; i < rounds; i++) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = _mm512_dpbf16_ps(sums[j], x, y);
        }
        for (int j = 1; j < CHAINS; j++) sums[0] = _mm512_add_ps(sums[0], sums[j]);
        return _mm512_reduce_add_ps(sums[0]);
#else
        return float(rounds);
#endif
    });
}

// Does such rounds with four products of tiles, which have 16 x 32 numbers in bfloat16, if the processor has AMX,
// otherwise no operations. The system has to permit AMX (matmul/arithmetic.py).
KERNEL(multiply_add_tiles, MultiplyArguments) {
    repeat(call, TILED, [](int64_t rounds) {
#if defined(TINY_LLM_HAS_TILES)
        static constexpr Tiles tiles(MOST_ROWS);
        _tile_loadconfig(&tiles);
        for (int64_t i = 0; i < rounds; i++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_release();
#endif
        return float(rounds);
    });
}

// Does such rounds with dot products of 8-bit numbers if the processor has an instruction for them, otherwise no
// operations.
KERNEL(multiply_add_int8, MultiplyArguments) {
    repeat(call, DOTS, [](int64_t rounds) {
#if defined(TINY_LLM_HAS_INT8)
        constexpr int HALF = CHAINS / 2;
        Dots sums[CHAINS] = {};
        words levels[HALF];
        ints x = 0x01010101 - ints{}, y = x;  // which change in each round: equal products would be computed once
        for (int j = 0; j < HALF; j++) levels[j] = 0x01020304 + j - words{};
        for (int64_t i = 0; i < rounds; i++, x += 1, y += 2) {
#pragma GCC unroll 16
            for (int j = 0; j < CHAINS; j++) sums[j] = add_dots(sums[j], levels[j % HALF], j < HALF ? x : y);
        }
        ints all = {};
        for (const Dots& sum : sums) all += total(sum);
        return float(all[0]);
#else
        return float(rounds);
#endif
    });
}
