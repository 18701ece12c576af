// The operations of block.cpp for weights that are not quantised: given.
#include "panels_unquantised.h"

#define TINY_LLM_FEW Unquantised
#define TINY_LLM_SOME Unquantised
#define TINY_LLM_MANY Unquantised
#include "block.cpp"
