// The simulator's C interface: what the host twins of the device functions call. One thread of a block is a fiber; every
// function here acts for the fiber that calls it, and the place a finding names is the return address of the call.
#pragma once
#include <cstdint>

namespace weft::sim {

struct Index3 {
    uint32_t x, y, z;
};

// What a thread knows of itself. It lies on the thread's own stack, so reading it is no access to memory that is checked.
struct Self {
    Index3 thread, block, block_size, grid_size;
    uint32_t linear;        // of the block
    uint32_t cluster_rank;  // of the block in its cluster
    uint32_t cluster_size;
};

enum class Vote : uint32_t { none, ballot, any, all, match };
enum class Scope : uint32_t { block, cluster, gpu, system };
enum class Order : uint32_t { relaxed = 0, acquire = 1, release = 2, acquire_release = 3 };
enum class Atomic : uint32_t { load, store, add, min, max, bit_and, bit_or, bit_xor, exchange, compare_exchange };

}  // namespace weft::sim

extern "C" {

// ---- threads
const weft::sim::Self& weft_self() __attribute__((const));
[[noreturn]] void weft_trap();
void weft_yield();  // a step of a loop that waits for others
uint64_t weft_clock();

// ---- barriers of a block; threads: how many take part, 0 for all. wait: false arrives only
void weft_barrier(uint32_t id, uint32_t threads, bool wait);
uint32_t weft_barrier_count(uint32_t predicate);  // __syncthreads_count

// ---- warps
// The value that lane `source` gave; source outside 0...31 gives the caller's own value back.
uint64_t weft_shuffle(uint32_t mask, uint64_t value, int32_t source);
uint32_t weft_vote(uint32_t mask, weft::sim::Vote vote, uint64_t value);
void weft_sync_warp(uint32_t mask);
uint32_t weft_active_mask();

// ---- memory
void weft_fence(weft::sim::Scope scope);
void weft_arrive_at_grid();  // a block, once a launch
bool weft_grid_arrived();    // all blocks: the caller knows then what they knew
// Before the bytes are touched: an atomic of the caller, with what it orders.
void weft_atomic(const void* address, uint32_t bytes, weft::sim::Atomic what, weft::sim::Order order, weft::sim::Scope scope);
// An access that the compiler's instrumentation does not see: 16 bytes of shared memory, by a lane of a matrix copy.
void weft_in_global(const void* pointer);  // what an instruction for global memory accesses
void weft_shared_row(const void* row, bool write);
void weft_row_part(const void* part, uint32_t bytes);  // what another lane reads of such a row
// One operation of all 32 lanes of the warp: each gives a record of its own; when all are here `act` gets the 32 records, by
// lane (null for lanes that have ended), and does the work of all. Orders nothing else.
void weft_together(void* record, void (*act)(void* const* records));
// Registers that hold the pattern of variables never given a value.
void weft_check_registers(const void* values, uint32_t bytes, const char* what);

// ---- cp.async
void weft_copy_async(void* shared, const void* global, uint32_t bytes, uint32_t read);  // bytes beyond `read` become 0
void weft_commit_copies();
void weft_wait_copies(uint32_t left);
void weft_arrive_on_copies(void* barrier);

// ---- mbarriers
void weft_mbarrier_init(void* barrier, uint32_t count);
void weft_mbarrier_fence_init();
void weft_mbarrier_invalidate(void* barrier);
// Announces bytes, then arrives (or not); at the cluster's block `rank` (-1: this one).
void weft_mbarrier_arrive(void* barrier, uint32_t expected_bytes, bool arrives, int32_t rank);
bool weft_mbarrier_test(void* barrier, uint32_t parity);
void weft_mbarrier_wait(void* barrier, uint32_t parity);

// ---- bulk copies and tensor maps
// peers: the blocks of the cluster that get it, by bit; 0 for this one alone.
void weft_bulk_load(void* shared, const void* global, uint32_t bytes, void* barrier, uint32_t peers);
void weft_bulk_store(void* global, const void* shared, uint32_t bytes);
void weft_send(void* destination, const void* value, uint32_t bytes, void* barrier, uint32_t rank, bool after);  // places here
void weft_bulk_send(void* destination, const void* shared, uint32_t bytes, void* barrier, uint32_t rank);  // places here
void weft_tensor_load(void* shared, const void* map, void* barrier, const int32_t* coordinates, uint32_t rank, uint32_t peers);
void weft_tensor_store(const void* map, const void* shared, const int32_t* coordinates, uint32_t rank);
void weft_bulk_commit();
void weft_bulk_wait(uint32_t left, bool read_only);
void weft_fence_proxy(bool of_shared);  // else of global memory

// ---- wgmma: of a warpgroup

// How a matrix lies in shared memory, as wgmma's descriptor says it (see device/wgmma.cuh). start: from the beginning of the
// block's shared memory. Distances in bytes.
struct weft_matrix {
    uint32_t start, leading, stride, swizzle;
    bool rows_contiguous;
};
enum weft_element : uint32_t { weft_float16, weft_bfloat16, weft_tfloat32, weft_int8, weft_uint8 };
uint32_t weft_shared_offset(const void* shared);
// sums: this thread's columns / 2 accumulators, float or int32_t. a_registers: its four registers of A, or null where A is in shared memory.
void weft_wgmma(void* sums, uint32_t columns, const uint32_t* a_registers, const weft_matrix* a, const weft_matrix* b,
                bool accumulate, weft_element left, weft_element right);
void weft_wgmma_fence();
void weft_wgmma_commit();
void weft_wgmma_wait(uint32_t left);

// ---- clusters, registers and launches
void* weft_peer(const void* shared, uint32_t rank);
void weft_cluster_arrive();
void weft_cluster_arrive_relaxed();
void weft_cluster_wait();
void weft_registers(uint32_t registers, bool more);
void weft_await_launch();
}
