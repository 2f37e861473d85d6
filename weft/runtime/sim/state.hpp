// The one launch that runs, the fiber that runs of it, and the memory of the device.
#pragma once
#include <chrono>

#include "weft/launch.hpp"

namespace weft::sim {

// Device memory: a range of addresses with room around every array, so that what lies outside one is nothing else.
constexpr uint64_t slot_bits = 34, slot_count = 64, guard_bytes = 64 << 20;
constexpr uint64_t slot_bytes = 1ull << slot_bits;
constexpr uint32_t worker_limit = 512;
constexpr unsigned char poison = 0xfe;
constexpr uint32_t idle_limit = 200;  // rounds of waiting loops that change nothing, before other blocks have a turn
constexpr std::chrono::seconds patience(30);  // with threads that neither end nor wait, before one is said to make no end

struct Launch {
    Index3 grid{}, block_size{}, cluster{1, 1, 1};
    uint32_t threads = 0, cluster_blocks = 1;
    uint64_t blocks = 0, next_block = 0;
    uint32_t shared_granule = 4;  // bytes that a cell of shared memory has in blocks that begin
    uint64_t seed = 0;
    uint32_t registers = 0;
    bool dependent = false, first = false;
    void (*entry)(const uint64_t*) = nullptr;
    void* (*anchor)() = nullptr;
    const uint64_t* arguments = nullptr;
    std::mt19937_64 random;
    uint32_t eagerness = 0;  // of asynchronous units: 0 as late as can be, 1 at once, 2 at random

    std::mutex mutex;
    std::vector<std::unique_ptr<Worker>> workers;
    std::vector<std::unique_ptr<Block>> all_blocks;
    std::map<uint64_t, Cluster> clusters;
    uint64_t progress = 0;
    std::chrono::steady_clock::time_point moved = std::chrono::steady_clock::now();  // when a thread last ended or woke another
    bool aborted = false;

    std::unordered_map<const void*, SiteId> site_index;
    std::vector<const void*> site_place{nullptr};
    std::vector<SiteCounts> counts{1};
    std::vector<uint32_t> site_kind{0};
    std::vector<uint64_t> site_object{0};
    uint64_t barriers = 0;

    AccessSets accesses;
    std::unordered_map<Actor, AgentName> agents;
    std::unordered_map<uintptr_t, Released> released;  // by atomics, by address
    uint64_t arrived = 0;                              // blocks, at the grid's barrier
    Message of_arrived;
    std::map<std::tuple<std::string, SiteId, SiteId>, Found> findings;
};

namespace {

Launch* launch = nullptr;
Fiber* current = nullptr;
uintptr_t arena = 0;
std::unique_ptr<Region> regions[slot_count];

}  // namespace
}  // namespace weft::sim
