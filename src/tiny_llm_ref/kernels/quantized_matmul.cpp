// Many vectors times a quantised matrix, a tile of the result at a time: y = x W^T, with W packed as quantize.py says.
//
// All arithmetic is in float, whatever the dtypes of x and of the scales.
#include <algorithm>
#include <memory>

#include "matmul/product.h"
#include "vector.h"

namespace tiny_llm {
namespace {

#if defined(__AVX512F__) || defined(__aarch64__)
constexpr int M_TILE = 8;  // rows of x: their sums take half of the 32 registers
#else
constexpr int M_TILE = 6;  // of 16 registers, 12 hold sums
#endif
constexpr int N_VECTORS = 2, N_TILE = N_VECTORS * WIDTH;  // rows of W

// Computes a tile of sums: out = x^T w, over n rows of x and of w. x: n x M_TILE, w: n x N_TILE, out: M_TILE x N_TILE.
void tile(const float* x, const float* w, int64_t n, float* out) {
    // task w2d6.1 begin
    floats sums[M_TILE][N_VECTORS] = {};
    for (int64_t k = 0; k < n; k++, x += M_TILE, w += N_TILE)
        for (int i = 0; i < M_TILE; i++)
            for (int j = 0; j < N_VECTORS; j++) sums[i][j] += x[i] * load(w + j * WIDTH);
    for (int i = 0; i < M_TILE; i++)
        for (int j = 0; j < N_VECTORS; j++) store(out + i * N_TILE + j * WIDTH, sums[i][j]);
    // task w2d6.1 end
}

// Memory for numbers. It begins at the start of a cache line, because a vector that spans two lines takes two loads.
class Buffer {
   public:
    float* at_least(int64_t size) {
        if (size > size_) {
            lines_.reset(new Line[(size + 15) / 16]);
            size_ = size;
        }
        return lines_[0].numbers;
    }

   private:
    struct alignas(64) Line {
        float numbers[16];
    };
    std::unique_ptr<Line[]> lines_;
    int64_t size_ = -1;
};

// Returns all of x, M_TILE rows interleaved, in the order in which `tile` reads them. After the last row come rows of
// zeros.
const float* tiles_of_x(const Product& p, Buffer& buffer) {
    const int64_t count = (p.M + M_TILE - 1) / M_TILE;
    float* tiles = buffer.at_least(count * M_TILE * p.K);
    p.threads(count, 1, [&](int64_t begin, int64_t end) {
        Buffer row_buffer;
        float* row = row_buffer.at_least(p.K);
        for (int64_t m = begin * M_TILE; m < end * M_TILE; m++) {
            if (m < p.M)
                widen(p.x, m * p.K, p.K, row);
            else
                std::fill_n(row, p.K, 0.f);
            float* to = tiles + m / M_TILE * M_TILE * p.K + m % M_TILE;
            for (int64_t k = 0; k < p.K; k++) to[k * M_TILE] = row[k];
        }
    });
    return tiles;
}

// Returns N_TILE rows of W from row `first` on, interleaved, in the order in which `tile` reads them. The last row is
// repeated where there are no more rows.
const float* panel_of_w(const Product& p, int64_t first) {
    static thread_local Buffer buffer, of_scales, of_biases;  // kept: allocating memory costs more than using it
    float *panel = buffer.at_least(p.K * N_TILE), *scales = of_scales.at_least(N_TILE * p.groups),
          *biases = of_biases.at_least(N_TILE * p.groups);
    const int64_t count = std::min<int64_t>(N_TILE, p.N - first), words_of_group = p.group_size / p.per_word;
    const uint32_t mask = (1u << p.bits) - 1;
    widen(p.scales, first * p.groups, count * p.groups, scales);
    widen(p.biases, first * p.groups, count * p.groups, biases);
    for (int64_t n = 0; n < N_TILE; n += WIDTH) {
        int64_t rows[WIDTH];
        for (int i = 0; i < WIDTH; i++) rows[i] = std::min(n + i, count - 1);
        float* to = panel + n;
        for (int64_t group = 0; group < p.groups; group++) {
            floats scale = {}, bias = {};
            for (int i = 0; i < WIDTH; i++) {
                scale[i] = scales[rows[i] * p.groups + group];
                bias[i] = biases[rows[i] * p.groups + group];
            }
            for (int64_t word = group * words_of_group; word < (group + 1) * words_of_group; word++) {
                words packed = {};
                for (int i = 0; i < WIDTH; i++) packed[i] = p.packed.as<uint32_t>()[(first + rows[i]) * p.words + word];
                for (int j = 0; j < p.per_word; j++, to += N_TILE)
                    store(to, scale * __builtin_convertvector((ints)(packed >> p.bits * j & mask), floats) + bias);
            }
        }
    }
    return panel;
}

// Computes y tile by tile, in panels that threads share.
void product(const Product& p) {
    Buffer buffer;
    const float* x = tiles_of_x(p, buffer);
    // task w2d6.2 begin
    p.threads((p.N + N_TILE - 1) / N_TILE, 1, [&](int64_t begin, int64_t end) {
        for (int64_t n = begin * N_TILE; n < std::min(end * N_TILE, p.N); n += N_TILE) {
            const float* panel = panel_of_w(p, n);
            for (int64_t m = 0; m < p.M; m += M_TILE) {
                float sums[M_TILE * N_TILE];
                tile(x + m * p.K, panel, p.K, sums);
                for (int64_t i = 0; i < std::min<int64_t>(M_TILE, p.M - m); i++)
                    narrow(sums + i * N_TILE, std::min<int64_t>(N_TILE, p.N - n), p.out, (m + i) * p.N + n);
            }
        }
    });
    // task w2d6.2 end
}

struct ShapeArguments {
    Out<int32_t, 1> out;  // M_TILE, N_TILE
};

struct TileArguments {
    In<float, 2> x, w;
    Out<float, 2> out;  // x^T w
};

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(tile_shape, ShapeArguments) {
    call.out.as<int32_t>()[0] = M_TILE;
    call.out.as<int32_t>()[1] = N_TILE;
}

KERNEL(matmul_tile, TileArguments) {
    tile(call.x.as<float>(), call.w.as<float>(), call.x.shape[0], call.out.as<float>());
}

KERNEL(quantized_matmul, ProductArguments) { product(Product{call}); }
