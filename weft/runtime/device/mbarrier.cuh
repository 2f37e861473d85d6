// Barriers in shared memory whose phases end when arrivals and, from sm_90, announced bytes have all come.
//
// A phase needs `count` arrivals and as many bytes as were announced in it. When both are there the barrier starts the next
// phase by itself. Waiters name a phase by its parity: the first has 0, the second 1, the third 0, ... ; so no thread
// may fall two phases behind. wait(1) on a fresh barrier returns at once: what a producer wants of an empty slot.
#pragma once
#include "weft/atomic.cuh"

namespace weft {

struct alignas(8) Mbarrier {
    uint64_t state;

    // By one thread, before the others' first use; then fence_mbarrier_init() and __syncthreads() (or cluster_sync()).
    WEFT_FUNCTION void init(int count) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" : : "r"(detail::shared_address(this)), "r"(count) : "memory");
    }

    // The memory may be put to other use, once all have left.
    WEFT_FUNCTION void invalidate() {
        asm volatile("mbarrier.inval.shared.b64 [%0];" : : "r"(detail::shared_address(this)) : "memory");
    }

    // One arrival. What this thread did before is seen by those that wait.
    WEFT_FUNCTION void arrive() {
        asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }"
                     : : "r"(detail::shared_address(this)) : "memory");
    }

    // One arrival, if `here`: without a branch, which threads would have to meet again after.
    WEFT_FUNCTION void arrive_if(bool here) {
        asm volatile("{ .reg .pred p; .reg .b64 state; setp.ne.u32 p, %1, 0; @p mbarrier.arrive.shared.b64 state, [%0]; }"
                     : : "r"(detail::shared_address(this)), "r"(uint32_t(here)) : "memory");
    }

    // Whether the phase of this parity is over.
    WEFT_FUNCTION bool test(uint32_t parity) const {
        uint32_t over;
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(over) : "r"(detail::shared_address(this)), "r"(parity) : "memory");
        return over != 0;
    }

#if __CUDA_ARCH__ >= 900
    // Wait until the phase of this parity is over. What was done before its arrivals is then seen; Scope::cluster where
    // arrivals come from other blocks.
    template <Scope scope = Scope::block> WEFT_FUNCTION void wait(uint32_t parity) const {
        uint32_t over;
        do {
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.%3.shared::cta.b64 p, [%1], %2;"
                         " selp.u32 %0, 1, 0, p; }"
                         : "=r"(over)
                         : "r"(detail::shared_address(this)), "r"(parity), "C"(detail::scope_name<scope>::text)
                         : "memory");
        } while (over == 0);
    }

    // This phase also needs so many more bytes of bulk copies.
    WEFT_FUNCTION void expect(uint32_t bytes) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
                     : : "r"(detail::shared_address(this)), "r"(bytes) : "memory");
    }

    // expect(bytes), then one arrival.
    WEFT_FUNCTION void arrive_expect(uint32_t bytes) {
        asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }"
                     : : "r"(detail::shared_address(this)), "r"(bytes) : "memory");
    }

    // One arrival at the barrier in the same place of the cluster's block `rank`, this one's own included.
    WEFT_FUNCTION void arrive_at_peer(uint32_t rank) const {
        asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
                     " mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }"
                     : : "r"(detail::shared_address(this)), "r"(rank) : "memory");
    }
#else
    template <Scope scope = Scope::block> WEFT_FUNCTION void wait(uint32_t parity) const {
        while (!test(parity)) {
        }
    }
#endif
};

#if __CUDA_ARCH__ >= 900
// Barriers that this thread has initialised are so for the cluster and for bulk copies, after the next barrier of all.
WEFT_FUNCTION void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory"); }
#else
WEFT_FUNCTION void fence_mbarrier_init() {}
#endif

}  // namespace weft
