// Registers change hands between the warpgroups of a block (sm_90a).
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// From here on a thread has n registers: a multiple of 8 from 24 to 256. All warps of a warpgroup call it; increase waits until
// others have given up enough. The kernel has __launch_bounds__(threads, 1).
template <int n> WEFT_FUNCTION void increase_registers() {
    static_assert(n % 8 == 0 && 24 <= n && n <= 256, "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(n));
}
template <int n> WEFT_FUNCTION void decrease_registers() {
    static_assert(n % 8 == 0 && 24 <= n && n <= 256, "a multiple of 8 from 24 to 256");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(n));
}

}  // namespace weft
