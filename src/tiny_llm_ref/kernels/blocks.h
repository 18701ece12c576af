// attend_block, as it is written in attention.cpp: a block of queries against all keys that they see. Given.
#pragma once
#include "kernel.h"

#pragma push_macro("KERNEL")
#undef KERNEL
#define KERNEL(name) [[maybe_unused]] static void name(const tiny_llm::Call& call)  // that file's kernels are its own
#include "attention.cpp"
#pragma pop_macro("KERNEL")
