// attend_block, as it is written in attention.cpp: a block of queries against all keys that they see. Given.
#pragma once
#include "kernel.h"

#pragma push_macro("KERNEL")
#undef KERNEL
// that file's kernels are its own
#define KERNEL(name, ...) [[maybe_unused]] static void name(const tiny_llm::Named<__VA_ARGS__>::Type& call)
#include "attention.cpp"
#pragma pop_macro("KERNEL")
