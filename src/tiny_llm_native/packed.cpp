// Products with packed 4-bit weights (packed.h): given, and faster than what week 2's days build up to.
#include "packed.h"

using namespace tiny_llm;

// in: levels O x I / 8, scales and biases O x I / 64 in bfloat16; out: panels.
KERNEL(pack_panels) {
    const Array &levels = call.in[0], &scales = call.in[1], &biases = call.in[2];
    const int64_t words = levels.last(), groups = scales.last();
    uint32_t* to = call.out[0].as<uint32_t>();
    for (int64_t panel = 0; panel < levels.shape[0] / ROWS; panel++)
        for (int64_t group = 0; group < groups; group++, to += PANEL_GROUP) {
            auto* head = reinterpret_cast<uint16_t*>(to);
            for (int row = 0; row < ROWS; row++) {
                const int64_t from = panel * ROWS + row;
                head[row] = scales.as<uint16_t>()[from * groups + group];
                head[ROWS + row] = biases.as<uint16_t>()[from * groups + group];
                for (int line = 0; line < LINES; line++)
                    to[ROWS + line * ROWS + row] = levels.as<uint32_t>()[from * words + group * LINES + line];
            }
        }
}

// in: x M x I, panels; out: M x O.
KERNEL(packed_matmul) {
    const Array &x = call.in[0], &out = call.out[0];
    const int64_t columns = x.last(), M = columns ? x.size() / columns : 0, O = out.last();
    const Panels weight = {call.in[1].as<uint32_t>(), O, columns};
    const Rows rows = rows_for<0>(M, columns);
    dispatch(x.dtype, [&]<typename T>(T*) {
        call.threads(M, 4, [&](int64_t begin, int64_t end) {
            float* wide = scratch<float, 102>(columns);
            for (int64_t m = begin; m < end; m++) {
                for (int64_t i = 0; i < columns; i++) wide[i] = x.as<T>()[m * columns + i];
                prepare(wide, columns, rows.inputs_of(m), rows.sums_of(m));
            }
        });
        multiply(rows, weight, call.threads, [&](int64_t m, int64_t row, Sixteen sixteen) {
            float found[ROWS];
            to_floats(found, sixteen);
            for (int i = 0; i < ROWS; i++) out.as<T>()[m * O + row + i] = found[i];
        });
    });
}
