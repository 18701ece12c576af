// The types of vectors' elements, and their names in Metal's namespace.
#pragma once

#define MSL_EACH_NUMBER(F) \
    F(char) F(uchar) F(short) F(ushort) F(int) F(uint) F(long) F(ulong) F(half) F(bfloat) F(float)

#define MSL_USING_NUMBERS \
    namespace metal {     \
    using ::bfloat;       \
    using ::half;         \
    using ::int16_t;      \
    using ::int32_t;      \
    using ::int64_t;      \
    using ::int8_t;       \
    using ::size_t;       \
    using ::uchar;        \
    using ::uint;         \
    using ::uint16_t;     \
    using ::uint32_t;     \
    using ::uint64_t;     \
    using ::uint8_t;      \
    using ::ulong;        \
    using ::ushort;       \
    }
