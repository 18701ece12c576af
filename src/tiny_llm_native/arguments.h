// A kernel's named arguments: a struct with one member per argument, in the order in which the kernel's op passes them.
//
//     struct Scaling {
//         In<float> x;
//         Out<float> out;
//         float factor;
//         Threads threads;
//     };
//     KERNEL(scale, Scaling) { ... call.x.last() ... }
//
// Before a kernel runs, Python compares the op's arrays and numbers with the struct (arguments.py). This file is a part
// of kernel.h, whose last line includes it.
#pragma once
#include <type_traits>

namespace tiny_llm {

template <typename T>
constexpr bool is_element = std::is_same_v<T, float> || std::is_same_v<T, int32_t> || std::is_same_v<T, uint32_t>;

// An array with this many axes; 0 means any number of axes. float means float32, bfloat16 or float16.
template <typename T, int axes = 0>
struct In : Array {
    static_assert(is_element<T>, "an input holds float, int32_t or uint32_t");
};
template <typename T, int axes = 0>
struct Out : Array {
    static_assert(is_element<T>, "an output holds float, int32_t or uint32_t");
};

// Initialises any member of a struct with the call's next input, output or number, depending on the member's type.
struct Next {
    const Call& call;
    int &in, &out, &number;

    template <typename T, int axes>
    operator In<T, axes>() const {
        return {call.in[in++]};
    }
    template <typename T, int axes>
    operator Out<T, axes>() const {
        return {call.out[out++]};
    }
    template <typename T>
        requires std::is_arithmetic_v<T>
    operator T() const {
        return T(call.numbers[number++]);
    }
    operator Threads() const { return call.threads; }
};

// Initialises a member in the same way, but also writes the member's kind into `text`: f2 or F2 for an input or output
// of floats with two axes, i or I for an array of int32, u or U for an array of uint32, and n for a number.
struct Noted {
    char*& text;

    template <typename T>
    static constexpr char letter = std::is_same_v<T, float>     ? 'f'
                                   : std::is_same_v<T, int32_t> ? 'i'
                                                                : 'u';

    template <typename T, int axes>
    operator In<T, axes>() const {
        *text++ = letter<T>, *text++ = '0' + axes;
        return {};
    }
    template <typename T, int axes>
    operator Out<T, axes>() const {
        *text++ = letter<T> - 'a' + 'A', *text++ = '0' + axes;
        return {};
    }
    template <typename T>
        requires std::is_arithmetic_v<T>
    operator T() const {
        *text++ = 'n';
        return {};
    }
    operator Threads() const { return {}; }
};

struct Anything {
    template <typename T>
    operator T() const;
};

// Returns a struct whose members are all made from `next`, one after the other.
template <typename Arguments, typename Member, typename... Same>
Arguments filled(const Member& next, const Same&... same) {
    if constexpr (requires { Arguments{same..., next}; }) {
        return filled<Arguments>(next, same..., next);
    } else {
        static_assert(!requires { Arguments{same..., Anything()}; }, "a member is no In, Out, number or Threads");
        return {same...};
    }
}

// A kernel without a struct receives the call itself.
template <typename Arguments = Call>
struct Named {
    using Type = Arguments;

    static Arguments of(const Call& call) {
        int in = 0, out = 0, number = 0;
        return filled<Arguments>(Next{call, in, out, number});
    }
    static const char* description() {
        static char text[64] = {};
        char* end = text;
        filled<Arguments>(Noted{end});
        return text;
    }
};
template <>
struct Named<Call> {
    using Type = Call;
    static const Call& of(const Call& call) { return call; }
    static const char* description() { return ""; }
};

}  // namespace tiny_llm

// KERNEL(name, Struct) { ... } defines the function that Python finds under this name. In its body, `call` is a Struct.
#define KERNEL(name, ...)                                                                                     \
    static void name##_body(const tiny_llm::Named<__VA_ARGS__>::Type& call);                                  \
    extern "C" const char* name##_arguments() { return tiny_llm::Named<__VA_ARGS__>::description(); }         \
    extern "C" void name(const tiny_llm::Call& call) { name##_body(tiny_llm::Named<__VA_ARGS__>::of(call)); } \
    static void name##_body([[maybe_unused]] const tiny_llm::Named<__VA_ARGS__>::Type& call)
