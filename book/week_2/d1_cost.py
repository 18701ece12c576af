"""Print the cost of the next token after a context of S tokens: operations, and bytes read with 16-bit numbers."""

from dataclasses import dataclass


@dataclass
class Size:
    layers: int
    E: int
    I: int
    H_q: int
    H_kv: int
    D: int
    V: int

    @property
    def weights(self) -> int:
        """Return the number of weights in all matrices by which a token's vector is multiplied."""
        return self.layers * (2 * self.E * self.D * (self.H_q + self.H_kv) + 3 * self.E * self.I) + self.E * self.V

    def attention(self, S: int) -> int:
        """Return the operations of attention for one token over S positions, in all heads of all layers."""
        return 4 * self.layers * self.H_q * self.D * S

    def cache(self, S: int) -> int:
        """Return the bytes of the keys and values of S tokens."""
        return 2 * 2 * self.layers * self.H_kv * self.D * S


SIZES = {
    "story": Size(layers=6, E=256, I=768, H_q=4, H_kv=2, D=64, V=4096),
    "Qwen3-0.6B": Size(layers=28, E=1024, I=3072, H_q=16, H_kv=8, D=128, V=151_936),
}

for name, size in SIZES.items():
    print(f"{name:10}             operations, in millions                megabytes read")
    print("   context     without   weights + attention =    with      weights + cache")
    for S in (10, 100, 1_000, 10_000, 40_000):
        if name == "story" and S > 1_024:
            continue
        weights, attention = 2 * size.weights, size.attention(S)
        again = S * (weights + attention)  # the mask saves nothing: all S x S scores are computed
        row = (again / 1e6, weights / 1e6, attention / 1e6, (weights + attention) / 1e6)
        print(f"{S:10,} {row[0]:11,.0f} {row[1]:9,.1f} + {row[2]:9,.1f} = {row[3]:7,.0f}", end="")
        print(f" {2 * size.weights / 1e6:12,.1f} + {size.cache(S) / 1e6:,.1f}")
