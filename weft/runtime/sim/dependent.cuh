// Launches of which one begins before the one before it on the stream has ended, for the simulator, which runs one after another.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// Wait until the launch before this one has ended.
WEFT_HOST_FUNCTION void await_launch_before() { weft_await_launch(); }

// The launch after this one may begin.
WEFT_HOST_FUNCTION void allow_launch_after() {}

}  // namespace weft
