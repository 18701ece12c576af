// SwiGLU's product, silu(gate) * up. A thread computes four numbers.
//
// gate, up and out: n numbers of type T.

// Returns four numbers from i on, as float; past the end they are 0. A simdgroup takes 128 numbers in a row.
template <typename T>
float4 load4(const device T* x, uint i, uint n) {
    if (i + 4 <= n) return float4(x[i], x[i + 1], x[i + 2], x[i + 3]);
    float4 numbers = 0;
    for (uint k = 0; i + k < n; k++) numbers[k] = x[i + k];
    return numbers;
}

template <typename T>
void store4(device T* x, uint i, uint n, float4 numbers) {
    for (uint k = 0; k < 4 && i + k < n; k++) x[i + k] = T(numbers[k]);
}

KERNEL(swiglu) {
    const uint n = gate_shape[1];
    // task w2d5.6 begin
    // Week 2 Day 5 Task 6: what belongs here is yours to write.
    // Chapter: Fused kernels.
    // Test: ./course test w2d5.6
    // task w2d5.6 end
}
