// The types of numbers, of which there are vectors.
#pragma once

#define MSL_EACH_NUMBER(F) \
    F(char) F(uchar) F(short) F(ushort) F(int) F(uint) F(long) F(ulong) F(half) F(bfloat) F(float)
