// Registers change hands between the warpgroups of a block, for the simulator.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

template <int n> WEFT_HOST_FUNCTION void increase_registers() {
    static_assert(n % 8 == 0 && 24 <= n && n <= 256, "a multiple of 8 from 24 to 256");
    weft_registers(n, true);
}
template <int n> WEFT_HOST_FUNCTION void decrease_registers() {
    static_assert(n % 8 == 0 && 24 <= n && n <= 256, "a multiple of 8 from 24 to 256");
    weft_registers(n, false);
}

}  // namespace weft
