// simdgroup_matrix: 8 x 8 elements. Each of the 32 lanes holds two neighbours in a row. MLX's kernels rely on this
// layout.
#pragma once
#include "reduce.h"

namespace metal {
struct matrix_place {  // the position of a lane's first element, and the lane that holds an element
    static constexpr int row(uint32_t lane) { return (int)((lane / 4 & 4) + lane / 2 % 4); }
    static constexpr int column(uint32_t lane) { return (int)((lane / 4 & 2) * 2 + lane % 2 * 2); }
    static constexpr uint32_t lane(int row, int column) {
        return (uint32_t)((row / 4 * 4 + column / 4 * 2) * 4 + row % 4 * 2 + column % 4 / 2);
    }
};

template <class T, int Columns, int Rows = Columns>
struct simdgroup_matrix {
    static_assert(Columns == 8 && Rows == 8, "a simdgroup_matrix has 8 x 8 elements");
    static_assert(is_floating_point_v<T>, "the elements of a simdgroup_matrix are float, half or bfloat");
    vec<T, 2> held;

    simdgroup_matrix() = default;
    MSL_INLINE explicit simdgroup_matrix(T diagonal) {
        const int row = matrix_place::row(msl_lane()), column = matrix_place::column(msl_lane());
        held.d[0] = row == column ? diagonal : T(0);
        held.d[1] = row == column + 1 ? diagonal : T(0);
    }
    MSL_INLINE vec<T, 2>& thread_elements() { return held; }
    MSL_INLINE const vec<T, 2>& thread_elements() const { return held; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <class T, int C, int R>
MSL_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, C, R> m;
    m.held = vec<T, 2>(value);
    return m;
}

MSL_OURS void need_all_lanes(const char* operation, msl_where where) {
    exchange<bool>(true, operation, where).need_all();
}

template <class T>
MSL_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* from, ulong stride = 8,
                               ulong2 origin = ulong2(0ul, 0ul), bool transposed = false, MSL_WHERE) {
    need_all_lanes("simdgroup_load", where);
    const ulong row = matrix_place::row(msl_lane()), column = matrix_place::column(msl_lane());
    from += origin.d[1] * stride + origin.d[0];
    m.held.d[0] = transposed ? from[column * stride + row] : from[row * stride + column];
    m.held.d[1] = transposed ? from[(column + 1) * stride + row] : from[row * stride + column + 1];
}
template <class T>
MSL_INLINE void simdgroup_store(simdgroup_matrix<T, 8, 8> m, T* to, ulong stride = 8, ulong2 origin = ulong2(0ul, 0ul),
                                bool transposed = false, MSL_WHERE) {
    need_all_lanes("simdgroup_store", where);
    const ulong row = matrix_place::row(msl_lane()), column = matrix_place::column(msl_lane());
    to += origin.d[1] * stride + origin.d[0];
    to[transposed ? column * stride + row : row * stride + column] = m.held.d[0];
    to[transposed ? (column + 1) * stride + row : row * stride + column + 1] = m.held.d[1];
}

template <class A, class B>
struct matrix_operands {
    A a[2];
    B b[2];
};
template <class D, class A, class B, class C>
MSL_OURS void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                            const simdgroup_matrix<B, 8, 8>& b, const simdgroup_matrix<C, 8, 8>& c,
                                            MSL_WHERE) {
    const exchange<matrix_operands<A, B>> all({{a.held.d[0], a.held.d[1]}, {b.held.d[0], b.held.d[1]}},
                                              "simdgroup_multiply_accumulate", where);
    all.need_all();
    const int row = matrix_place::row(all.lane()), column = matrix_place::column(all.lane());
    float x = (float)c.held.d[0], y = (float)c.held.d[1];
    for (int k = 0; k < 8; k++) {
        const float left = (float)all.at(matrix_place::lane(row, k)).a[k & 1];
        const auto right = all.at(matrix_place::lane(k, column));
        x += left * (float)right.b[0];
        y += left * (float)right.b[1];
    }
    d.held.d[0] = (D)x;
    d.held.d[1] = (D)y;
}
template <class D, class A, class B>
MSL_OURS void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                                 const simdgroup_matrix<B, 8, 8>& b, MSL_WHERE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0)), where);
}
template <class T>
MSL_OURS auto operator*(const simdgroup_matrix<T, 8, 8>& a, const simdgroup_matrix<T, 8, 8>& b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b, {"", 0, 0});
    return d;
}
}  // namespace metal
