// Products with packed 4-bit weights (packed.h): given, and faster than the kernels that you write in week 2.
#include "packed.h"

using namespace tiny_llm;

namespace {

struct PackArguments {
    In<uint32_t, 2> levels;       // O x I / 8
    In<float, 2> scales, biases;  // O x I / 64, in bfloat16
    Out<uint32_t, 3> panels;
};

struct PackedProductArguments {
    In<float> x;  // N.. x I
    In<uint32_t, 3> panels;
    Out<float> out;  // N.. x O
    Threads threads;
};

}  // namespace

KERNEL(pack_panels, PackArguments) {
    const int64_t words = call.levels.last(), groups = call.scales.last();
    uint32_t* to = call.panels.as<uint32_t>();
    for (int64_t panel = 0; panel < call.levels.shape[0] / ROWS; panel++)
        for (int64_t group = 0; group < groups; group++, to += FourBits::PANEL_GROUP) {
            auto* head = reinterpret_cast<uint16_t*>(to);
            for (int row = 0; row < ROWS; row++) {
                const int64_t from = panel * ROWS + row;
                head[row] = call.scales.as<uint16_t>()[from * groups + group];
                head[ROWS + row] = call.biases.as<uint16_t>()[from * groups + group];
                for (int line = 0; line < LINES; line++)
                    to[ROWS + line * ROWS + row] = call.levels.as<uint32_t>()[from * words + group * LINES + line];
            }
        }
}

KERNEL(packed_matmul, PackedProductArguments) {
    const int64_t columns = call.x.last(), M = columns ? call.x.size() / columns : 0, O = call.out.last();
    const Panels weight = {call.panels.as<uint32_t>(), O, columns};
    const PreparedRows rows = rows_for<0>(M, columns);
    dispatch_float(call.x.dtype, [&]<typename T>(T*) {
        call.threads(M, 4, [&](int64_t begin, int64_t end) {
            float* wide = scratch<float, 102>(columns);
            for (int64_t m = begin; m < end; m++) {
                for (int64_t i = 0; i < columns; i++) wide[i] = call.x.as<T>()[m * columns + i];
                rows.prepare(m, wide);
            }
        });
        multiply(rows, weight, call.threads, [&](int64_t m, int64_t row, Sixteen sixteen) {
            float found[ROWS];
            to_floats(found, sixteen);
            for (int i = 0; i < ROWS; i++) call.out.as<T>()[m * O + row + i] = found[i];
        });
    });
}
