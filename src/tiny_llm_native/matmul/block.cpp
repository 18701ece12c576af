// A transformer block in two operations, one before and one after attention, with packed weights: given.
#include "packed.h"

using namespace tiny_llm;

namespace {

// Computes x / rms(x) * weight.
template <typename T, typename W>
void normalise(const T* x, const W* weight, float* to, int64_t n, float eps) {
    floats squares = {};
    int64_t i = 0;
    for (; i + WIDTH <= n; i += WIDTH) {
        const floats part = load(x + i);
        squares += part * part;
    }
    float total = sum(squares);
    for (; i < n; i++) total += float(x[i]) * float(x[i]);
    const float scale = 1 / std::sqrt(total / n + eps);
    for (i = 0; i + WIDTH <= n; i += WIDTH) store(to + i, load(x + i) * scale * load(weight + i));
    for (; i < n; i++) to[i] = float(x[i]) * scale * float(weight[i]);
}

// Calls work(m, wide) for each row. The work fills `wide`, which then becomes row m of the input of a product.
template <typename Work>
void prepare_rows(const PreparedRows& rows, const Threads& threads, Work work) {
    threads(rows.count, 4, [&](int64_t begin, int64_t end) {
        float* wide = scratch<float, 102>(rows.columns);
        for (int64_t m = begin; m < end; m++) {
            work(m, wide);
            rows.prepare(m, wide);
        }
    });
}

// The D / 2 cosines and D / 2 sines of each row's angles. All layers of a step need the same angles, so the last table
// is kept.
struct Angles {
    std::unique_ptr<float[]> table;
    int64_t rows = 0, D = 0, L = 0, first = -1;
    double base = 0;

    const float* of(int64_t B, int64_t length, int64_t dims, double theta, int64_t offset, const int32_t* offsets) {
        if (!offsets && rows == B * length && L == length && D == dims && base == theta && first == offset)
            return table.get();
        if (rows * D < B * length * dims) table.reset(new float[B * length * dims]);
        rows = B * length, D = dims, L = length, base = theta, first = offsets ? -1 : offset;
        for (int64_t i = 0; i < D / 2; i++) {
            const double speed = std::pow(base, -2.0 * i / D);
            for (int64_t m = 0; m < rows; m++) {
                const double angle = speed * ((offsets ? offsets[m / L] : offset) + m % L);
                table[m * D + i] = std::cos(angle);
                table[m * D + D / 2 + i] = std::sin(angle);
            }
        }
        return table.get();
    }
};

template <typename T>
void rotate(const float* x, const float* angles, T* to, int64_t D) {
    const int64_t half = D / 2;
    int64_t i = 0;
    for (; i + WIDTH <= half; i += WIDTH) {
        const floats a = load(x + i), b = load(x + half + i), c = load(angles + i), s = load(angles + half + i);
        store(to + i, a * c - b * s);
        store(to + half + i, a * s + b * c);
    }
    for (; i < half; i++) {
        to[i] = x[i] * angles[i] - x[half + i] * angles[half + i];
        to[half + i] = x[i] * angles[half + i] + x[half + i] * angles[i];
    }
}

struct BeforeArguments {
    In<float, 3> x;               // B x L x E
    In<float, 1> norm;            // weights
    In<uint32_t, 3> qkv;          // panels of q, then those of k, then those of v
    In<float, 1> q_norm, k_norm;  // weights, or empty
    In<float, 1> bias;            // or empty
    In<int32_t, 1> offsets;       // B positions, or empty
    Out<float, 4> q, k, v;        // each B x H x L x D
    float eps;
    double base;
    int64_t offset;  // the position of the first token, if `offsets` is empty
    Threads threads;
};

struct AfterArguments {
    In<float, 4> attended;  // B x H x L x D
    In<float, 3> x;         // B x L x E
    In<uint32_t, 3> o;
    In<float, 1> norm;
    In<uint32_t, 3> gate_up, down;  // gate_up: alternating panels of gate and up
    Out<float, 3> out;              // B x L x E
    float eps;
    Threads threads;
};

struct NormMatmulArguments {
    In<float> x;  // N.. x E
    In<float, 1> norm;
    In<uint32_t, 3> panels;
    Out<float> out;  // N.. x V
    float eps;
    Threads threads;
};

struct EmbedArguments {
    In<int32_t> tokens;      // N..
    In<uint32_t, 3> panels;  // of the table
    Out<float> out;          // N.. x E
};

}  // namespace

// Copies all inputs into one output, one after the other.
KERNEL(join) {
    auto* to = static_cast<char*>(call.out[0].data);
    const char* end = to + call.out[0].size() * sizeof(uint32_t);
    for (const Array* part = call.in; to < end; part++) {
        const int64_t bytes = part->size() * sizeof(uint32_t);
        std::memcpy(to, part->data, bytes);
        to += bytes;
    }
}

KERNEL(before_attention, BeforeArguments) {
    const Array &x = call.x, &bias = call.bias, &offsets = call.offsets;
    const Array* out[3] = {&call.q, &call.k, &call.v};
    const float eps = call.eps;
    const int64_t B = x.shape[0], L = x.shape[1], E = x.shape[2], M = B * L, D = call.q.last();
    const int64_t heads[3] = {call.q.shape[1], call.k.shape[1], call.v.shape[1]};
    const int64_t H = heads[0] + heads[1] + heads[2], N = H * D;
    static thread_local Angles kept;
    const float* angles = kept.of(B, L, D, call.base, call.offset, offsets.size() ? offsets.as<int32_t>() : nullptr);
    float* found = scratch<float, 10>(M * N);
    const PreparedRows rows = rows_for<0>(M, E);
    dispatch_float(x.dtype, [&]<typename T>(T*) {
        prepare_rows(rows, call.threads,
                     [&](int64_t m, float* wide) { normalise(x.as<T>() + m * E, call.norm.as<T>(), wide, E, eps); });
        multiply(rows, {call.qkv.as<uint32_t>(), N, E}, call.threads,
                 [&](int64_t m, int64_t row, Sixteen sixteen) { to_floats(found + m * N + row, sixteen); });
        call.threads(M * H, 64, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; i++) {
                const int64_t m = i / H, head = i % H, kind = head < heads[0] ? 0 : head < heads[0] + heads[1] ? 1 : 2;
                const int64_t h = head - (kind > 0 ? heads[0] : 0) - (kind > 1 ? heads[1] : 0);
                float* from = found + m * N + head * D;
                T* to = out[kind]->as<T>() + ((m / L * heads[kind] + h) * L + m % L) * D;
                if (bias.size())
                    for (int64_t j = 0; j < D; j++) from[j] += float(bias.as<T>()[head * D + j]);
                const Array& norm = kind == 0 ? call.q_norm : call.k_norm;
                if (kind < 2 && norm.size()) normalise(from, norm.as<T>(), from, D, eps);
                if (kind < 2) {
                    rotate(from, angles + m * D, to, D);
                } else {
                    for (int64_t j = 0; j < D; j++) to[j] = from[j];
                }
            }
        });
    });
}

KERNEL(after_attention, AfterArguments) {
    const Array &attended = call.attended, &x = call.x;
    const float eps = call.eps;
    const int64_t B = x.shape[0], L = x.shape[1], E = x.shape[2], M = B * L;
    const int64_t H = attended.shape[1], D = attended.last(), Q = H * D, I = call.down.shape[1] * GROUP;
    float *stream = scratch<float, 10>(M * E), *gates = scratch<float, 11>(M * 2 * I);
    const PreparedRows joined = rows_for<0>(M, Q), normed = rows_for<2>(M, E), inner = rows_for<4>(M, I);
    dispatch_float(x.dtype, [&]<typename T>(T*) {
        prepare_rows(joined, call.threads, [&](int64_t m, float* wide) {
            for (int64_t h = 0; h < H; h++) {
                const int64_t *step = attended.strides, start = m / L * step[0] + h * step[1] + m % L * step[2];
                const T* from = attended.as<T>() + start;
                for (int64_t j = 0; j < D; j++) wide[h * D + j] = from[j * step[3]];
            }
        });
        multiply(joined, {call.o.as<uint32_t>(), E, Q}, call.threads, [&](int64_t m, int64_t row, Sixteen sixteen) {
            float* to = stream + m * E + row;
            to_floats(to, sixteen);
            for (int i = 0; i < ROWS; i++) to[i] += float(x.as<T>()[m * E + row + i]);
        });
        prepare_rows(normed, call.threads,
                     [&](int64_t m, float* wide) { normalise(stream + m * E, call.norm.as<T>(), wide, E, eps); });
        multiply(normed, {call.gate_up.as<uint32_t>(), 2 * I, E}, call.threads,
                 [&](int64_t m, int64_t row, Sixteen sixteen) { to_floats(gates + m * 2 * I + row, sixteen); });
        prepare_rows(inner, call.threads, [&](int64_t m, float* wide) {
            const float* from = gates + m * 2 * I;  // 16 of gate, 16 of up, 16 of gate, ...
            for (int64_t i = 0; i < I; i += ROWS, from += 2 * ROWS)
                for (int j = 0; j < ROWS; j += WIDTH) {
                    const floats gate = load(from + j);
                    store(wide + i + j, gate / (1 + exp(-gate)) * load(from + ROWS + j));
                }
        });
        multiply(inner, {call.down.as<uint32_t>(), E, I}, call.threads, [&](int64_t m, int64_t row, Sixteen sixteen) {
            float result[ROWS];
            to_floats(result, sixteen);
            for (int i = 0; i < ROWS; i++) call.out.as<T>()[m * E + row + i] = result[i] + stream[m * E + row + i];
        });
    });
}

// Computes the last norm and the output layer.
KERNEL(norm_matmul, NormMatmulArguments) {
    const Array &x = call.x, &out = call.out;
    const int64_t E = x.last(), M = E ? x.size() / E : 0, V = out.last();
    const PreparedRows rows = rows_for<0>(M, E);
    dispatch_float(x.dtype, [&]<typename T>(T*) {
        prepare_rows(rows, call.threads, [&](int64_t m, float* wide) {
            normalise(x.as<T>() + m * E, call.norm.as<T>(), wide, E, call.eps);
        });
        multiply(rows, {call.panels.as<uint32_t>(), V, E}, call.threads, [&](int64_t m, int64_t row, Sixteen sixteen) {
            float result[ROWS];
            to_floats(result, sixteen);
            for (int i = 0; i < ROWS; i++) out.as<T>()[m * V + row + i] = result[i];
        });
    });
}

KERNEL(embed, EmbedArguments) {
    const Array &tokens = call.tokens, &out = call.out;
    const int64_t E = out.last(), groups = E / GROUP;
    const Panels table = {call.panels.as<uint32_t>(), call.panels.shape[0] * ROWS, E};
    using Format = TINY_LLM_FEW;
    dispatch_float(out.dtype, [&]<typename T>(T*) {
        for (int64_t i = 0; i < tokens.size(); i++) {
            const int64_t token = tokens.as<int32_t>()[i];
            const uint32_t* group = table.panel<Format>(token / ROWS);
            T* to = out.as<T>() + i * E;
            for (int64_t g = 0; g < groups; g++, group += Format::PANEL_GROUP, to += GROUP)
                Format::read_row(group, token % ROWS, to);
        }
    });
}
