// The part of the Metal Shading Language that kernels of this course use, as C++17. It is the only header that a kernel
// is compiled with.
#pragma once
#include "msl/atomic.h"  // the last of a chain: each header includes the previous one
#include "msl/calls.h"
// The refused names come last, so that the other headers can use them.
#include "msl/refused.h"
