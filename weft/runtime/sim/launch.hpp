// A launch while it runs: its blocks, their threads and what those wait for.
#pragma once
#include <condition_variable>
#include <functional>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "weft/counts.hpp"
#include "weft/engine.hpp"
#include "weft/fiber.hpp"
#include "weft/shadow.hpp"

namespace weft::sim {

struct Block;
struct Worker;

enum class State : uint8_t { ready, spinning, waiting, done };


// Work that an asynchronous unit does at a time of its choosing.
struct Work {
    std::function<void()> happen;
    bool done = false;
    void run() {
        if (done) return;
        done = true;
        happen();
    }
};
using WorkPointer = std::shared_ptr<Work>;

// Operations that are committed in groups and waited for in order. What is issued carries the clock `stamp` + 1 of its agent.
struct Groups {
    struct Group {
        std::vector<WorkPointer> works;
        uint32_t stamp;
    };
    Actor agent = nobody, writer = nobody;  // `writer`: of the writes, where they are waited for apart from the reads
    uint32_t stamp = 0, waited = 0;
    std::deque<Group> pending;  // committed, not waited for
    std::vector<WorkPointer> open;
};

// Registers that an asynchronous product writes, of the group `stamp`.
struct InFlight {
    uintptr_t address;
    uint32_t bytes, stamp;
    bool operand = false;  // which it only reads
};

struct Fiber {
    Context context;
    Self* self = nullptr;
    Block* block = nullptr;
    uint32_t number = 0, lane = 0, warp = 0;
    uintptr_t stack = 0;
    State state = State::ready;
    const char* waits_for = "";
    SiteId wait_site = 0;
    Knowledge knowledge;
    uint64_t steps = 0;
    // a warp's collectives: what this lane gave, for two of them in turn
    uint64_t given[2] = {0, 0};
    uint32_t turn = 0;
    uint32_t gave_mask = 0, gave_op = 0;
    bool in_collective = false;
    Groups copies, bulk;
    SiteId bulk_site = 0;
    std::vector<InFlight> in_flight;
    std::vector<std::pair<uintptr_t, uint32_t>> accumulators;  // of products so far: address and bytes
    bool fenced = false;                                       // since a thread wrote them last
    uint32_t products = 0;                                     // groups of products committed
    std::unordered_map<uintptr_t, std::pair<uint32_t, uint32_t>> waited;  // mbarrier: parity, phases complete then
    Message at_fence, heard;  // what it knew at its last fence; what relaxed loads have brought since
    Message at_making;         // what it knew when it last made mbarriers known
    uint32_t cluster_phase = 0, cluster_waits = 0;
    bool met_cluster = false;  // has arrived at its cluster's barrier, the last time in cluster_phase
    uint32_t registers = 0;
    bool awaited = false;  // the launch before
};

struct Barrier {
    uint32_t expected = 0, arrived = 0;
    std::vector<Fiber*> waiting;
    Message message;
    SiteId site = 0;
};

struct Mbarrier {
    uint32_t count = 0, left = 0;
    int64_t bytes = 0;   // announced and not yet come
    uint32_t phase = 0;  // phases complete
    Message gathering, complete;
    Actor agent = nobody;
    Actor maker = nobody;
    uint32_t made = 0;  // the maker's clock
    bool fenced = false, valid = false;
    std::vector<std::pair<Fiber*, uint32_t>> waiting;  // with the parity each waits for
    SiteId expect_site = 0, copy_site = 0;
    uintptr_t address = 0;
    Block* block = nullptr;
};

struct Warp {
    WarpCounts counts;
    uint32_t live = 0;
};

// A warp that gathers for its part of a warpgroup's products: when that is done says nothing of the other warps.
struct Multiplier {
    struct Given {
        Fiber* fiber;
        void* sums;
        const uint32_t* a;
    };
    std::vector<Given> here;
    SiteId site = 0;
    Actor agent = nobody;
    std::deque<Groups::Group> issued;  // by stamp
};

struct Block {
    uint32_t number = 0, rank = 0;  // in the launch, in its cluster
    Index3 index{};
    Worker* worker = nullptr;
    Region shared;
    std::unique_ptr<Fiber[]> fibers;
    uint32_t live = 0, exited = 0;
    std::vector<Fiber*> ready, spinning;
    Barrier barriers[16];
    uint32_t sums[3] = {0, 0, 0}, round = 0;  // of __syncthreads_count
    std::vector<Warp> warps;
    std::vector<Multiplier> multipliers;  // by warp
    std::map<uintptr_t, Mbarrier> mbarriers;
    std::vector<WorkPointer> transfers;  // bulk loads on their way
    uint32_t actors = 0;
    int64_t registers_free = 0;
    std::vector<Fiber*> wanting_registers;
    std::vector<uint8_t> swizzles;  // by 16 bytes: how a tensor copy wrote them, as 1 + bytes / 32
    Message known_at_exit;
    bool finished = false;
    uint32_t idle = 0;  // rounds of waiting loops without progress
    uint64_t tried = ~0ull;  // the launch's progress when nothing here could go on
};

struct Cluster {
    uint32_t arrived = 0, exited = 0, left = 0, phase = 0;  // arrived, exited: threads; who has exited has not arrived
    std::vector<Fiber*> waiting;
    Message gathering, complete;
    std::vector<Block*> blocks;
};

struct Worker {
    std::thread thread;
    std::condition_variable awake;
    bool running = false, finished = false;
    Block* block = nullptr;
    std::unique_ptr<Stacks> stacks;
    Context context;          // of its scheduler
    std::vector<Cell> cells;  // of the shared memory of its last block
};

struct AgentName {
    std::string kind;
    uint64_t of = 0;
};

// What the last release at an address hands on.
struct Released {
    Message message;
    Scope scope = Scope::gpu;
    uint32_t block = 0;
};

struct Found {
    std::string json;
    uint64_t times = 0;
};

}  // namespace weft::sim
