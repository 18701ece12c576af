// RoPE: computes the angles of each position once, and rotates the pairs of all heads at this position by these angles.
#include <cmath>
#include <vector>

#include "rows.h"
#include "vector.h"

namespace tiny_llm {
namespace {

// Computes sine and cosine of angles from -1/2 to 1/2 turns, accurate to 1e-7.
void sin_cos(floats turns, floats& sine, floats& cosine) {
    const floats quarters = (turns * 4 + 12582912.f) - 12582912.f;         // to the nearest integer, -2 to 2
    const floats x = (turns - quarters * 0.25f) * 6.28318531f, z = x * x;  // -pi/4 to pi/4
    const floats s = x + x * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
    const floats c = 1 - z / 2 + z * z * (4.1666645683e-2f + z * (-1.3887316255e-3f + z * 2.4433157118e-5f));
    const ints quarter = __builtin_convertvector(quarters, ints) & 3;
    const floats a = (quarter & 1) != 0 ? c : s, b = (quarter & 1) != 0 ? s : c;
    sine = quarter >= 2 ? -a : a;
    cosine = ((quarter == 1) | (quarter == 2)) != 0 ? -b : b;
}

// The memory of a thread: the frequency of each of a head's D / 2 pairs, in turns per position, and room for the pairs'
// angles.
struct Angles {
    std::vector<double> frequency;
    std::vector<float> turns, sine, cosine;  // padded to a multiple of WIDTH

    Angles(int64_t D, double base) : frequency(D / 2) {
        const double ratio = std::pow(base, -2.0 / D);
        double next = 1 / (2 * M_PI);
        for (double& f : frequency) f = next, next *= ratio;
        const int64_t room = (D / 2 + WIDTH - 1) / WIDTH * WIDTH;
        turns.resize(room), sine.resize(room), cosine.resize(room);
    }
};

// Rotates the pairs of all H heads of one position by position * frequency turns. Heads are `step` numbers apart in x,
// and D numbers in out.
template <typename T>
void rope_position(const T* x, int64_t step, T* out, int64_t H, int64_t D, double position, bool traditional,
                   Angles& angles) {
    const std::vector<double>& frequency = angles.frequency;
    float *turns = angles.turns.data(), *sine = angles.sine.data(), *cosine = angles.cosine.data();
    const int64_t half = D / 2;
    // task w2d5.2 begin
    // Week 2 Day 5 Task 2: what belongs here is yours to write.
    // Chapter: Fused kernels.
    // Test: ./course test w2d5.2
    // task w2d5.2 end
}

struct RopeArguments {
    In<float, 4> x;          // B x L x H x D
    In<int32_t, 1> offsets;  // B: each row's first position
    Out<float, 4> out;       // as x
    double base;
    bool traditional;
    Threads threads;
};

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(rope, RopeArguments) {
    const int64_t B = call.x.shape[0], L = call.x.shape[1], H = call.x.shape[2], D = call.x.shape[3];
    if (call.x.size() == 0) return;
    dispatch_float(call.x.dtype, [&]<typename T>(T*) {
        const StridedRows rows(call.x);
        const int64_t grain = 1 + 8192 / (H * D);
        call.threads(B * L, grain, [&](int64_t begin, int64_t end) {
            Angles angles(D, call.base);
            for (int64_t i = begin; i < end; i++) {
                const double position = call.offsets.as<int32_t>()[i / L * call.offsets.strides[0]] + i % L;
                T* out = call.out.as<T>() + i * H * D;
                rope_position(rows.at<T>(i * H), rows.step(), out, H, D, position, call.traditional, angles);
            }
        });
    });
}
