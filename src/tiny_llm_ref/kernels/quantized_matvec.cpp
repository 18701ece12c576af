// A quantised matrix times a few vectors, in three steps of speed: y = x W^T, with W packed as quantize.py says.
//
// All arithmetic is float's, whatever the dtypes of x and of the scales.
#include <algorithm>
#include <vector>

#include "vector.h"

namespace tiny_llm {
namespace {

// A row of n weights times x, one weight at a time.
template <typename T, typename S>
float dot_scalar(
    const T* x, const uint32_t* packed, const S* scales, const S* biases, int64_t n, int bits, int group_size) {
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

// Numbers from the start of a cache line on, since a vector that lies in two of them takes two loads. There are zeros
// behind the last one, so that whole vectors may be loaded.
class Buffer {
   public:
    explicit Buffer(int64_t size) : lines_(size / 16 + 1) {}
    float* data() { return lines_[0].numbers; }
    const float* data() const { return lines_[0].numbers; }

   private:
    struct alignas(64) Line {
        float numbers[16] = {};
    };
    std::vector<Line> lines_;
};

// Also asks memory for the numbers that will be next. Not inlined, since the loops that call it are faster so.
[[gnu::noinline]] void widen(const Array& from, int64_t start, int64_t count, float* to) {
    dispatch(from.dtype, [=, &from]<typename T>(T*) {
        const T* numbers = from.as<T>() + start;
        for (int64_t i = 0; i < count; i++) to[i] = numbers[i];
        for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(numbers + count + i);
    });
}

[[gnu::noinline]] void narrow(const float* from, int64_t count, const Array& to, int64_t start) {
    dispatch(to.dtype, [=, &to]<typename T>(T*) {
        for (int64_t i = 0; i < count; i++) to.as<T>()[start + i] = from[i];
    });
}

// A block is WIDTH words. In it are PER_WORD vectors of fields: each word's first element, each word's second…
template <int BITS>
struct Block {
    static constexpr int PER_WORD = 32 / BITS, SIZE = WIDTH * PER_WORD;
    static constexpr int AHEAD = 1024;  // words: memory answers as late as the products with these are done

    static words load(const uint32_t* packed) {
        __builtin_prefetch(packed + AHEAD);
        words block;
        std::memcpy(&block, packed, sizeof block);
        return block;
    }
    // The levels of field j, times unit(j, PER_WORD).
    static floats field(words block, int j) {
        const uint32_t mask = (1u << BITS) - 1;
        const words field = j < PER_WORD - 1 ? block & mask << BITS * j : block >> BITS * j;
        return __builtin_convertvector((ints)field, floats);
    }
};

// A field stays where it is in its word, which saves a shift: it is a multiple of this. Only the last one is shifted,
// as its highest bit would be taken for a sign.
float unit(int j, int per_word) { return j < per_word - 1 ? float(1u << 32 / per_word * j) : 1; }

// A vector in which each number stands `times` times, side by side.
template <int times>
floats spread(const float* numbers) {
    ints lane = {};
    for (int i = 0; i < WIDTH; i++) lane[i] = i;
    floats x = splat(numbers[0]);
    for (int i = 1; i * times < WIDTH; i++) x = lane >= i * times ? splat(numbers[i]) : x;
    return x;
}

// A row of weights times x, a block at a time. fields: x in the order in which it meets the blocks' fields, divided by
// their units. sums: of x in each group.
template <int BITS, int GROUP>
float dot_vector(
    const float* fields, const float* sums, const uint32_t* packed, const float* scales, const float* biases,
    int64_t blocks, int64_t groups) {
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

// The arguments of the kernels below.
struct Product {
    const Array &x, &packed, &scales, &biases, &out;
    int bits, group_size, per_word;
    int64_t vectors, rows, size, words, groups;  // of x, of W, of a row
    int64_t block;                               // its size
    Threads threads;

    explicit Product(const Call& call)
        : x(call.in[0]),
          packed(call.in[1]),
          scales(call.in[2]),
          biases(call.in[3]),
          out(call.out[0]),
          bits(int(call.numbers[0])),
          group_size(int(call.numbers[1])),
          per_word(32 / bits),
          vectors(x.shape[0]),
          rows(packed.shape[0]),
          size(x.last()),
          words(packed.last()),
          groups(scales.last()),
          block(WIDTH * per_word),
          threads(call.threads) {}
};

// All vectors x, made ready for dot_vector.
class Activations {
   public:
    explicit Activations(const Product& product)
        : padded_((product.size + product.block - 1) / product.block * product.block),
          groups_((product.groups + 15) / 16 * 16),
          fields_(product.vectors * padded_),
          sums_(product.vectors * groups_) {
        Buffer x(padded_);
        for (int64_t i = 0; i < product.vectors; i++) {
            widen(product.x, i * product.size, product.size, x.data());
            add_groups(x.data(), product, sums_.data() + i * groups_);
            reorder(x.data(), product, fields_.data() + i * padded_);
        }
    }
    const float* fields(int64_t i) const { return fields_.data() + i * padded_; }
    const float* sums(int64_t i) const { return sums_.data() + i * groups_; }

   private:
    const int64_t padded_, groups_;  // of a vector
    Buffer fields_, sums_;

    void add_groups(const float* x, const Product& product, float* sums) const {
        for (int64_t i = 0; i < product.groups; i++) {
            floats total = {};
            for (int j = 0; j < product.group_size; j += WIDTH) total += load(x + i * product.group_size + j);
            sums[i] = sum(total);
        }
    }
    void reorder(const float* x, const Product& product, float* fields) const {
        for (int j = 0; j < product.per_word; j++) {
            const float part = 1 / unit(j, product.per_word);
            for (int64_t i = 0; i < padded_; i += product.block)
                for (int word = 0; word < WIDTH; word++)
                    fields[i + j * WIDTH + word] = x[i + word * product.per_word + j] * part;
        }
    }
};

// Computes rows of W times each vector. A thread needs one of its own.
class Rows {
   public:
    Rows(const Product& product, const Activations& x)
        : product_(product),
          x_(x),
          dot_(dot_of(product.bits, product.group_size)),
          scales_(AT_ONCE * product.groups),
          biases_(AT_ONCE * product.groups) {}

    void compute(int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; row += AT_ONCE) compute_some(row, std::min(AT_ONCE, end - row));
    }

   private:
    static constexpr int64_t AT_ONCE = 8;
    const Product& product_;
    const Activations& x_;
    const Dot dot_;
    Buffer scales_, biases_;

    void compute_some(int64_t first, int64_t count) {
        const Product& p = product_;
        widen(p.scales, first * p.groups, count * p.groups, scales_.data());
        widen(p.biases, first * p.groups, count * p.groups, biases_.data());
        for (int64_t i = 0; i < p.vectors; i++) {
            float results[AT_ONCE];
            for (int64_t row = 0; row < count; row++) {
                const auto* packed = p.packed.as<uint32_t>() + (first + row) * p.words;
                results[row] = dot(packed, scales_.data() + row * p.groups, biases_.data() + row * p.groups, i);
            }
            narrow(results, count, p.out, i * p.rows + first);
        }
    }

    // The words at a row's end that fill no block are copied to one that is filled with zeros.
    float dot(const uint32_t* packed, const float* scales, const float* biases, int64_t i) const {
        const Product& p = product_;
        const int64_t blocks = p.words / WIDTH, rest = p.words % WIDTH, done = blocks * p.block;
        const float total = dot_(x_.fields(i), x_.sums(i), packed, scales, biases, blocks, p.groups);
        if (rest == 0) return total;
        uint32_t last[WIDTH] = {};
        std::copy_n(packed + blocks * WIDTH, rest, last);
        return total + dot_(x_.fields(i) + done, nullptr, last, scales + done / p.group_size, nullptr, 1, 0);
    }
};

// All rows, shared out among threads.
void rows_threads(const Product& product, const Activations& x) {
    // task w2d4.3 begin
    const int64_t grain = 1 + 8192 / (1 + product.words);  // rows: 32 KiB are read sooner than a thread wakes up
    product.threads(product.rows, grain, [&](int64_t begin, int64_t end) { Rows(product, x).compute(begin, end); });
    // task w2d4.3 end
}

}  // namespace
}  // namespace tiny_llm

using namespace tiny_llm;

KERNEL(quantized_matvec_scalar) {
    const Product p(call);
    dispatch(p.x.dtype, [&]<typename T>(T*) {
        dispatch(p.scales.dtype, [&]<typename S>(S*) {
            for (int64_t i = 0; i < p.vectors * p.rows; i++) {
                const int64_t vector = i / p.rows, row = i % p.rows;
                p.out.as<T>()[i] = dot_scalar(
                    p.x.as<T>() + vector * p.size, p.packed.as<uint32_t>() + row * p.words,
                    p.scales.as<S>() + row * p.groups, p.biases.as<S>() + row * p.groups, p.size, p.bits, p.group_size);
            }
        });
    });
}

KERNEL(quantized_matvec_vector) {
    const Product product(call);
    Rows(product, Activations(product)).compute(0, product.rows);
}

KERNEL(quantized_matvec) {
    const Product product(call);
    rows_threads(product, Activations(product));
}
