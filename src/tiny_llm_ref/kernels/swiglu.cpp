// SwiGLU's product, silu(gate) * up, in one pass over each row.
#include <cmath>

#include "rows.h"
#include "vector.h"

namespace tiny_llm {
namespace {

// Computes one row: out = gate / (1 + exp(-gate)) * up.
template <typename T>
void swiglu_row(const T* gate, const T* up, T* out, int64_t n) {
    // task w2d5.3 begin
    const int64_t whole = n - n % WIDTH;
    for (int64_t i = 0; i < whole; i += WIDTH) {
        const floats g = load(gate + i);
        store(out + i, g / (1 + exp(-g)) * load(up + i));
    }
    for (int64_t i = whole; i < n; i++) {
        const float g = gate[i];
        out[i] = g / (1 + std::exp(-g)) * up[i];
    }
    // task w2d5.3 end
}

struct SwigluArguments {
    In<float> gate, up;  // of one shape
    Out<float> out;      // of the same shape
    Threads threads;
};

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(swiglu, SwigluArguments) {
    const int64_t n = call.gate.last();
    if (call.gate.size() == 0) return;
    dispatch_float(call.gate.dtype, [&]<typename T>(T*) {
        const StridedRows gate(call.gate), up(call.up);
        const int64_t grain = 1 + 16384 / n;
        call.threads(call.gate.size() / n, grain, [&](int64_t begin, int64_t end) {
            for (int64_t row = begin; row < end; row++)
                swiglu_row(gate.at<T>(row), up.at<T>(row), call.out.as<T>() + row * n, n);
        });
    });
}
