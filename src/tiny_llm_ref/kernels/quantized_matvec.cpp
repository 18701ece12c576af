// A quantised matrix times a few vectors: y = x W^T, with W packed as quantize.py says. There are three versions, each
// faster than the previous one.
// All arithmetic is in float, whatever the dtypes of x and of the scales.
#include <algorithm>
#include <vector>

#include "matmul/product.h"
#include "vector.h"

namespace tiny_llm {
namespace {

// Multiplies a row of n weights by x, one weight at a time.
template <typename T, typename S>
float dot_scalar(const T* x, const uint32_t* packed, const S* scales, const S* biases, int64_t n, int bits,
                 int group_size) {
    float total = 0;
    // task w2d4.1 begin
    const int per_word = 32 / bits;
    const uint32_t mask = (1u << bits) - 1;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t level = packed[i / per_word] >> (i % per_word * bits) & mask;
        const float scale = scales[i / group_size], bias = biases[i / group_size];
        total += x[i] * (scale * level + bias);
    }
    // task w2d4.1 end
    return total;
}

// A block is WIDTH words. It has PER_WORD fields: the first level of each word, the second level of each word…
template <int BITS>
struct Block {
    static constexpr int PER_WORD = 32 / BITS, SIZE = WIDTH * PER_WORD;
    static constexpr int AHEAD = 1024;  // words: computing with these takes about as long as memory takes to answer

    static words load(const uint32_t* packed) {
        __builtin_prefetch(packed + AHEAD);
        words block;
        std::memcpy(&block, packed, sizeof block);
        return block;
    }
    // Returns the levels of field j, times its unit.
    static floats field(words block, int j) {
        const uint32_t mask = (1u << BITS) - 1;
        const words field = j < PER_WORD - 1 ? block & mask << BITS * j : block >> BITS * j;
        return __builtin_convertvector((ints)field, floats);
    }
};

// A field stays where it is in its word, which saves a shift. So a field's number is the level times this unit. Only
// the last field is shifted, because its highest bit would be taken for a sign.
float unit(int j, int per_word) { return j < per_word - 1 ? float(1u << 32 / per_word * j) : 1; }

// Returns a vector in which each number occurs `times` times, one after the other.
template <int times>
floats spread(const float* numbers) {
    ints lane = {};
    for (int i = 0; i < WIDTH; i++) lane[i] = i;
    floats x = splat(numbers[0]);
    for (int i = 1; i * times < WIDTH; i++) x = lane >= i * times ? splat(numbers[i]) : x;
    return x;
}

// Returns the dot product of x with `blocks` blocks of a row of weights, plus the biases of the first `groups` groups,
// each times the sum of x in its group.
// fields: x in the order of the blocks' fields, divided by their units. sums: the sum of x in each group, then zeros.
template <int BITS, int GROUP>
float dot_vector(const float* fields, const float* sums, const uint32_t* packed, const float* scales,
                 const float* biases, int64_t blocks, int64_t groups) {
    using B = Block<BITS>;
    floats total = {};
    // task w2d4.2 begin
    for (int64_t i = 0; i < groups; i += WIDTH) total += load(biases + i) * load(sums + i);
    for (int64_t i = 0; i < blocks; i++) {
        const words block = B::load(packed + i * WIDTH);
        floats even = {}, odd = {};  // two sums, so that an addition need not wait for the one before it
        for (int j = 0; j < B::PER_WORD; j += 2) {
            even += B::field(block, j) * load(fields + i * B::SIZE + j * WIDTH);
            odd += B::field(block, j + 1) * load(fields + i * B::SIZE + (j + 1) * WIDTH);
        }
        total += (even + odd) * spread<GROUP / B::PER_WORD>(scales + i * B::SIZE / GROUP);
    }
    // task w2d4.2 end
    return sum(total);
}

using Dot = float (*)(const float*, const float*, const uint32_t*, const float*, const float*, int64_t, int64_t);

Dot dot_of(int bits, int group_size) {
    static constexpr Dot all[3][3] = {
        {dot_vector<2, 32>, dot_vector<2, 64>, dot_vector<2, 128>},
        {dot_vector<4, 32>, dot_vector<4, 64>, dot_vector<4, 128>},
        {dot_vector<8, 32>, dot_vector<8, 64>, dot_vector<8, 128>},
    };
    return all[bits / 4][group_size / 64];
}

// Numbers that begin at the start of a cache line, because a vector that spans two lines takes two loads. After the
// last number come zeros, so that a vector may be loaded from any place.
class Buffer {
   public:
    explicit Buffer(int64_t size) : lines_(size / 16 + 2) {}
    float* data() { return lines_[0].numbers; }
    const float* data() const { return lines_[0].numbers; }

   private:
    struct alignas(64) Line {
        float numbers[16] = {};
    };
    std::vector<Line> lines_;
};

// All rows of x, prepared for dot_vector.
class Activations {
   public:
    explicit Activations(const Product& p)
        : block_(WIDTH * p.per_word),
          padded_((p.K + block_ - 1) / block_ * block_),
          groups_((p.groups + 15) / 16 * 16),
          fields_(p.M * padded_),
          sums_(p.M * groups_) {
        Buffer x(padded_);
        for (int64_t m = 0; m < p.M; m++) {
            widen(p.x, m * p.K, p.K, x.data());
            add_groups(x.data(), p, sums_.data() + m * groups_);
            reorder(x.data(), p.per_word, fields_.data() + m * padded_);
        }
    }
    const float* fields(int64_t m) const { return fields_.data() + m * padded_; }
    const float* sums(int64_t m) const { return sums_.data() + m * groups_; }

   private:
    const int64_t block_, padded_, groups_;  // numbers of a block, of a padded row; groups of a row, padded
    Buffer fields_, sums_;

    void add_groups(const float* x, const Product& p, float* sums) const {
        for (int64_t i = 0; i < p.groups; i++) {
            floats total = {};
            for (int j = 0; j < p.group_size; j += WIDTH) total += load(x + i * p.group_size + j);
            sums[i] = sum(total);
        }
    }
    void reorder(const float* x, int per_word, float* fields) const {
        for (int j = 0; j < per_word; j++) {
            const float part = 1 / unit(j, per_word);
            for (int64_t i = 0; i < padded_; i += block_)
                for (int word = 0; word < WIDTH; word++)
                    fields[i + j * WIDTH + word] = x[i + word * per_word + j] * part;
        }
    }
};

constexpr int64_t AT_ONCE = 8;  // rows of W: widening the scales of several rows at once is faster than row by row

// A few rows of W, with their scales and biases as float. `take` replaces these rows by others.
class Rows {
   public:
    Rows(const Product& p, const Activations& x) : p_(p), x_(x), dot_(dot_of(p.bits, p.group_size)) {}

    void take(int64_t first, int64_t count) {
        if (count > room_) {
            scales_ = biases_ = Buffer(count * step_);
            room_ = count;
        }
        packed_ = p_.packed.as<uint32_t>() + first * p_.words;
        widen_rows(p_.scales, first, count, scales_.data());
        widen_rows(p_.biases, first, count, biases_.data());
    }

    // Returns row first + i of W times row m of x.
    float dot(int64_t i, int64_t m) const {
        const uint32_t* packed = packed_ + i * p_.words;
        const float *fields = x_.fields(m), *sums = x_.sums(m);
        const float *scales = scales_.data() + i * step_, *biases = biases_.data() + i * step_;
        const int64_t blocks = p_.words / WIDTH, rest = p_.words % WIDTH, done = blocks * WIDTH * p_.per_word;
        const float total = dot_(fields, sums, packed, scales, biases, blocks, p_.groups);
        if (rest == 0) return total;
        uint32_t last[WIDTH] = {};  // words that fill no block are copied into a block of zeros
        std::copy_n(packed + blocks * WIDTH, rest, last);
        return total + dot_(fields + done, sums, last, scales + done / p_.group_size, biases, 1, 0);
    }

   private:
    const Product& p_;
    const Activations& x_;
    const Dot dot_;
    // The distance from one row's scales to the next row's: whole vectors, padded with zeros. Otherwise the last vector
    // of a row would hold numbers of the next row, and an infinite number times 0 is NaN.
    const int64_t step_ = (p_.groups + WIDTH - 1) / WIDTH * WIDTH;
    const uint32_t* packed_ = nullptr;
    int64_t room_ = AT_ONCE;  // rows that scales_ and biases_ hold
    Buffer scales_{room_ * step_}, biases_{room_ * step_};

    // Widens all rows at once, and then moves them apart, the last row first.
    void widen_rows(const Array& from, int64_t first, int64_t count, float* to) {
        const int64_t groups = p_.groups;
        widen(from, first * groups, count * groups, to);
        if (step_ == groups) return;
        for (int64_t i = count - 1; i >= 0; i--) {
            std::memmove(to + i * step_, to + i * groups, groups * sizeof(float));
            std::fill_n(to + i * step_ + groups, step_ - groups, 0.f);
        }
    }
};

// Computes all rows of W times all rows of x. Threads share the rows of W.
void dot_threads(const Product& p, const Activations& x) {
    // task w2d4.3 begin
    const int64_t grain = 1 + 8192 / p.words;  // rows: reading 32 KiB takes less time than waking a thread
    p.threads(p.N, grain, [&](int64_t begin, int64_t end) {
        Rows rows(p, x);  // with memory of this thread's own
        for (int64_t first = begin; first < end; first += AT_ONCE) {
            const int64_t count = std::min(AT_ONCE, end - first);
            rows.take(first, count);
            for (int64_t m = 0; m < p.M; m++) {
                float results[AT_ONCE];
                for (int64_t i = 0; i < count; i++) results[i] = rows.dot(i, m);
                narrow(results, count, p.out, m * p.N + first);
            }
        }
    });
    // task w2d4.3 end
}

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(quantized_matvec_scalar, ProductArguments) {
    const Product p{call};
    dispatch_float(p.x.dtype, [&]<typename T>(T*) {
        dispatch_float(p.scales.dtype, [&]<typename S>(S*) {
            for (int64_t i = 0; i < p.M * p.N; i++) {
                const int64_t m = i / p.N, n = i % p.N;
                p.out.as<T>()[i] = dot_scalar(p.x.as<T>() + m * p.K, p.packed.as<uint32_t>() + n * p.words,
                                              p.scales.as<S>() + n * p.groups, p.biases.as<S>() + n * p.groups, p.K,
                                              p.bits, p.group_size);
            }
        });
    });
}

KERNEL(quantized_matvec_vector, ProductArguments) {
    const Product p{call};
    const Activations x(p);
    Rows row(p, x);
    for (int64_t n = 0; n < p.N; n++) {
        row.take(n, 1);
        for (int64_t m = 0; m < p.M; m++) {
            const float result = row.dot(0, m);
            narrow(&result, 1, p.out, m * p.N + n);
        }
    }
}

KERNEL(quantized_matvec, ProductArguments) {
    const Product p{call};
    dot_threads(p, Activations(p));
}
