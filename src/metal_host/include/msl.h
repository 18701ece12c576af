// The part of the Metal Shading Language that kernels of this course use, as C++17. A kernel is compiled with this
// header before it, and nothing else. The files stand in the order in which they need each other.
#pragma once
#include "msl/base.h"
// (bfloat and traits before vectors)
#include "msl/bfloat.h"
#include "msl/traits.h"
#include "msl/vector.h"
// functions of numbers
#include "msl/limits.h"
#include "msl/math.h"
#include "msl/integer.h"
#include "msl/geometric.h"
// functions of several threads
#include "msl/simdgroup.h"
#include "msl/reduce.h"
#include "msl/matrix.h"
#include "msl/atomic.h"
// what MLX puts before every kernel, and at last the names that are refused
#include "msl/mlx.h"
#include "msl/refused.h"
