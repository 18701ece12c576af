"""Print the megabytes that one token's products move in three ways, and the weights that reach a core per cycle."""

MATRICES = {  # of Qwen3-0.6B: number of matrices, rows, columns
    "q": (28, 2048, 1024),
    "k, v": (56, 1024, 1024),
    "o": (28, 1024, 2048),
    "gate, up": (56, 3072, 1024),
    "down": (28, 1024, 3072),
    "output layer": (1, 151_936, 1024),
}
BITS = {"bfloat16": 16, "made dense": 4.5 + 16 + 16, "packed": 4.5}  # bits moved per weight
BANDWIDTH, CORES, CYCLES = 90e9, 2, 4e9  # example machine: bytes per second, cores, cycles per second

print(f"{'megabytes':15}" + "".join(f"{name:>12}" for name in BITS) + f"{'x and y':>12}")
total, vectors = 0, 0.0
for name, (count, rows, columns) in MATRICES.items():
    weights, numbers = count * rows * columns, count * (rows + columns)
    line = "".join(f"{weights * bits / 8e6:12,.1f}" for bits in BITS.values())
    print(f"{name:15}{line}{numbers * 2 / 1e6:12,.2f}")
    total, vectors = total + weights, vectors + numbers * 2 / 1e6
print(f"{'all':15}" + "".join(f"{total * bits / 8e6:12,.1f}" for bits in BITS.values()) + f"{vectors:12,.2f}")
print(f"{'at 90 GB/s, ms':15}" + "".join(f"{total * bits / 8 / BANDWIDTH * 1e3:12,.1f}" for bits in BITS.values()))
each = {name: BANDWIDTH / (bits / 8) / CORES / CYCLES for name, bits in BITS.items()}
print(f"{'a cycle':15}{each['bfloat16']:12,.1f}{'':12}{each['packed']:12,.1f}   weights to a core")
