// The part of the Metal Shading Language that kernels of this course use, as C++17. A kernel is compiled with this
// header before it, and nothing else.
#pragma once
#include "msl/atomic.h"  // and with it all others, each of which includes the one that it needs
#include "msl/calls.h"
// At last the names that are refused, so that the headers before may use them.
#include "msl/refused.h"
