// Addresses as PTX wants them, for the simulator: offsets in a block's shared memory stand for the shared window.
#pragma once
#include "weft/scalar.cuh"

namespace weft {
namespace detail {

WEFT_HOST_FUNCTION uint32_t shared_address(const void* shared) { return weft_shared_offset(shared); }
WEFT_HOST_FUNCTION uint64_t global_address(const void* global) {
    weft_in_global(global);
    return uint64_t(global);
}

}  // namespace detail
}  // namespace weft
