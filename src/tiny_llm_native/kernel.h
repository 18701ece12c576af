// Kernels' arguments: arrays, numbers and threads. This file needs nothing of MLX, so a kernel compiles in a second.
#pragma once
#include <cstdint>
#include <cstring>

namespace tiny_llm {

enum class DType : int32_t { float32, bfloat16, float16, uint32, int32 };

struct Array {
    void* data;  // of the first element
    const int64_t* shape;
    const int64_t* strides;  // in elements
    int32_t ndim;
    DType dtype;

    template <typename T>
    T* as() const {
        return static_cast<T*>(data);
    }
    int64_t size() const {
        int64_t product = 1;
        for (int i = 0; i < ndim; i++) product *= shape[i];
        return product;
    }
    int64_t last() const { return shape[ndim - 1]; }
};

// Calls part(state, begin, end) on several threads until the whole range 0..total is done, with ranges of at least
// `grain`.
struct Threads {
    void (*run)(void (*part)(void* state, int64_t begin, int64_t end), void* state, int64_t total, int64_t grain);
    int64_t count;  // of threads

    template <typename Part>
    void operator()(int64_t total, int64_t grain, Part part) const {
        run([](void* state, int64_t begin, int64_t end) { (*static_cast<Part*>(state))(begin, end); }, &part, total,
            grain);
    }
};

struct Call {
    const Array* in;
    const Array* out;
    const double* numbers;
    Threads threads;
};

// 16-bit numbers are stored in these types, and converted to float for every operation.
struct bfloat16 {
    uint16_t bits;
    operator float() const {
        uint32_t wide = uint32_t(bits) << 16;
        float value;
        std::memcpy(&value, &wide, 4);
        return value;
    }
    bfloat16& operator=(float value) {
        uint32_t wide;
        std::memcpy(&wide, &value, 4);
        bool is_nan = (wide & 0x7fffffff) > 0x7f800000;
        bits = is_nan ? 0x7fc0 : uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16);  // to nearest, ties to even
        return *this;
    }
};
struct float16 {
    _Float16 value;
    operator float() const { return value; }
    float16& operator=(float x) {
        value = _Float16(x);
        return *this;
    }
};

// Calls f with a null pointer of the C++ type of a float's dtype: dispatch_float(x.dtype, [&](auto* type) { ... });
template <typename F>
void dispatch_float(DType dtype, F f) {
    if (dtype == DType::bfloat16) return f(static_cast<bfloat16*>(nullptr));
    if (dtype == DType::float16) return f(static_cast<float16*>(nullptr));
    return f(static_cast<float*>(nullptr));
}

}  // namespace tiny_llm

#include "arguments.h"
