// Barriers in shared memory whose phases end when arrivals and announced bytes have all come, for the simulator.
//
// The engine keeps their state; the place in shared memory is their name.
#pragma once
#include "weft/atomic.cuh"

namespace weft {

struct alignas(8) Mbarrier {
    uint64_t state;

    WEFT_HOST_FUNCTION void init(int count) { weft_mbarrier_init(this, uint32_t(count)); }
    WEFT_HOST_FUNCTION void invalidate() { weft_mbarrier_invalidate(this); }
    WEFT_HOST_FUNCTION void arrive() { weft_mbarrier_arrive(this, 0, true, -1); }
    WEFT_HOST_FUNCTION void arrive_if(bool here) {
        if (here) arrive();
    }
    WEFT_HOST_FUNCTION bool test(uint32_t parity) const { return weft_mbarrier_test(place(), parity); }
    template <Scope scope = Scope::block> WEFT_HOST_FUNCTION void wait(uint32_t parity) const {
        weft_mbarrier_wait(place(), parity);
    }

#if __CUDA_ARCH__ >= 900
    // Announced bytes do not arrive: the phase also ends only when they have come.
    WEFT_HOST_FUNCTION void expect(uint32_t bytes) { weft_mbarrier_arrive(this, bytes, false, -1); }
    WEFT_HOST_FUNCTION void arrive_expect(uint32_t bytes) { weft_mbarrier_arrive(this, bytes, true, -1); }
    WEFT_HOST_FUNCTION void arrive_at_peer(uint32_t rank) const { weft_mbarrier_arrive(place(), 0, true, int32_t(rank)); }
#endif

    WEFT_HOST_FUNCTION void* place() const { return const_cast<Mbarrier*>(this); }
};

#if __CUDA_ARCH__ >= 900
WEFT_HOST_FUNCTION void fence_mbarrier_init() { weft_mbarrier_fence_init(); }
#else
WEFT_HOST_FUNCTION void fence_mbarrier_init() {}
#endif

}  // namespace weft
