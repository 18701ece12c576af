// Metal's own copies of the C++ library's traits.
#pragma once
#include "bfloat.h"
#include "numbers.h"

MSL_USING_NUMBERS
#undef MSL_USING_NUMBERS
namespace metal {
using ::ptrdiff_t;
using std::bool_constant;
using std::conditional;
using std::conditional_t;
using std::conjunction_v;
using std::decay_t;
using std::declval;
using std::disjunction_v;
using std::enable_if;
using std::enable_if_t;
using std::false_type;
using std::integral_constant;
using std::is_const_v;
using std::is_convertible_v;
using std::is_integral;
using std::is_integral_v;
using std::is_pointer_v;
using std::is_same;
using std::is_same_v;
using std::is_signed_v;
using std::is_unsigned_v;
using std::make_signed;
using std::make_signed_t;
using std::make_unsigned;
using std::make_unsigned_t;
using std::remove_cv_t;
using std::remove_reference;
using std::remove_reference_t;
using std::true_type;

template <class T>
constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T>
constexpr bool is_arithmetic_v = is_floating_point_v<T> || is_integral_v<T>;
template <class T>
struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};

template <class T>
using remove_addrspace_t = T;

template <class T>
using if_float = enable_if_t<is_floating_point_v<T>, int>;
template <class T>
using if_integer = enable_if_t<is_integral_v<T>, int>;

template <size_t bytes>
struct whole {  // a type of this many bytes that the machine loads at once, or void
    using type = void;
};
#define MSL_WHOLE(bytes, ...)                                \
    template <>                                              \
    struct whole<bytes> {                                    \
        typedef __VA_ARGS__ type __attribute__((may_alias)); \
    };
MSL_WHOLE(2, uint16_t)
MSL_WHOLE(4, uint32_t)
MSL_WHOLE(8, uint64_t)
typedef uint32_t four_words __attribute__((vector_size(16)));
MSL_WHOLE(16, four_words)
#undef MSL_WHOLE
}  // namespace metal
