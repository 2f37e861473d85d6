// Addresses as PTX wants them. Only the headers beside this one use it: their interfaces take ordinary pointers.
#pragma once
#include "weft/scalar.cuh"

namespace weft {
namespace detail {

// A pointer to shared memory (of this block) as an offset in the shared window, which is also its shared::cluster address.
WEFT_FUNCTION uint32_t shared_address(const void* shared) { return uint32_t(__cvta_generic_to_shared(shared)); }
WEFT_FUNCTION uint64_t global_address(const void* global) { return uint64_t(__cvta_generic_to_global(global)); }

}  // namespace detail
}  // namespace weft
