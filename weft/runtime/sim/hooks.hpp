// What the compiler's instrumentation calls, and how a launch is begun from outside.
#pragma once
#include "weft/launch.hpp"

#define WEFT_PLACE __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// A volatile access is a relaxed one; who waits by reading again and again must let others come between.
static void relaxed(void* a, uint32_t bytes, Atomic what, const void* place) {
    const auto address = reinterpret_cast<uintptr_t>(a);
    if (!current || address - current->stack < Stacks::usable()) return;
    if (what == Atomic::load) spin(site_of(place), "memory to change");
    atomic_access(address, bytes, what, Order::relaxed, Scope::system, site_of(place));
}

#define WEFT_HOOK(bytes)                                                                                                        \
    void __tsan_read##bytes(void* a) { access(a, bytes, false, bytes, WEFT_PLACE); }                                           \
    void __tsan_write##bytes(void* a) { access(a, bytes, true, bytes, WEFT_PLACE); }                                           \
    void __tsan_unaligned_read##bytes(void* a) { access(a, bytes, false, 1, WEFT_PLACE); }                                     \
    void __tsan_unaligned_write##bytes(void* a) { access(a, bytes, true, 1, WEFT_PLACE); }                                     \
    void __tsan_volatile_read##bytes(void* a) { relaxed(a, bytes, Atomic::load, WEFT_PLACE); }                                 \
    void __tsan_volatile_write##bytes(void* a) { relaxed(a, bytes, Atomic::store, WEFT_PLACE); }                               \
    void __tsan_unaligned_volatile_read##bytes(void* a) { relaxed(a, bytes, Atomic::load, WEFT_PLACE); }                       \
    void __tsan_unaligned_volatile_write##bytes(void* a) { relaxed(a, bytes, Atomic::store, WEFT_PLACE); }
WEFT_HOOK(1)
WEFT_HOOK(2)
WEFT_HOOK(4)
WEFT_HOOK(8)
WEFT_HOOK(16)
#undef WEFT_HOOK

// Aggregates of other sizes: the hardware takes 16 bytes at a time, or as many as their size is a multiple of (what has 12
// bytes lies at multiples of 4).
static void range(void* a, unsigned long bytes, bool write, const void* place) {
    auto* p = static_cast<char*>(a);
    const auto step = static_cast<uint32_t>(std::min<unsigned long>(16, bytes & -bytes));
    while (bytes) {
        access(p, step, write, step, place);
        p += step;
        bytes -= step;
    }
}
void __tsan_read_range(void* a, unsigned long bytes) { range(a, bytes, false, WEFT_PLACE); }
void __tsan_write_range(void* a, unsigned long bytes) { range(a, bytes, true, WEFT_PLACE); }

// Of what is accessed by an instruction for global memory.
void weft_in_global(const void* pointer) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    bool stray;
    in_space(Space::global, region_of(address, 1, stray), address, 1, WEFT_HERE);
}

// Of rows that `weft_shared_row` has checked and counted, by the lane that gets it.
void weft_row_part(const void* part, uint32_t bytes) {
    Region& r = current->block->shared;
    const auto address = reinterpret_cast<uintptr_t>(part);
    const uint64_t offset = address - r.base;
    if (offset + bytes > r.bytes || r.cells[offset / r.granule].writer == nobody) return;
    touch(r, address, bytes, false, self(site_of(WEFT_PLACE)));
}

void weft_shared_row(const void* row, bool write) {
    const auto address = reinterpret_cast<uintptr_t>(row);
    if (address - current->block->shared.base >= current->block->shared.bytes) {
        bool stray;
        report("out of bounds", WEFT_HERE, 0,
               place_json(region_of(address, 16, stray), address, 16) + ",\"actor\":" + thread_json(current) + ",\"action\":\"" +
                   (write ? "write" : "read") + "\"");
        abort_launch();
    }
    access(row, 16, write, 16, WEFT_PLACE);
}

// ---------------------------------------------------------------- from outside

// Room for an array of `bytes` whose address is `like` modulo 256. 0 where there is no more.
void* weft_place(uint32_t slot, uint64_t bytes, uint64_t like) {
    if (!arena) {
        void* made = mmap(nullptr, slot_bytes * slot_count, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (made == MAP_FAILED) return nullptr;
        arena = reinterpret_cast<uintptr_t>(made);
    }
    if (slot >= slot_count || bytes + 2 * guard_bytes > slot_bytes) return nullptr;
    const uintptr_t base = arena + slot * slot_bytes;
    const uint64_t room = (bytes + 2 * guard_bytes + 4095) / 4096 * 4096;
    if (mmap(reinterpret_cast<void*>(base), room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED) {
        return nullptr;
    }
    auto region = std::make_unique<Region>();
    region->base = base + guard_bytes + like % 256;
    region->bytes = bytes;
    region->number = slot;
    regions[slot] = std::move(region);
    return reinterpret_cast<void*>(regions[slot]->base);
}

// state: a byte for each cell of `granule` bytes: 0 not written yet, 1 written, 2 not of the array. Null: all written.
void weft_track(uint32_t slot, uint32_t granule, const unsigned char* state, bool read_only) {
    Region& r = *regions[slot];
    r.granule = granule;
    r.read_only = read_only;
    r.untracked = read_only && !state;
    if (r.untracked) return;
    r.track(by_host);
    if (!state) return;
    for (size_t k = 0; k < r.cells.size(); ++k) r.cells[k].written = state[k];
}

// The state of cells afterwards, as `weft_track` takes it; false for a region that nobody could write.
bool weft_states(uint32_t slot, unsigned char* state) {
    Region& r = *regions[slot];
    if (r.untracked) return false;
    for (size_t k = 0; k < r.cells.size(); ++k) {
        const Cell& c = r.cells[k];
        state[k] = c.writer != nobody ? 1 : uint8_t(c.written);
    }
    return true;
}

void weft_forget() {
    for (uint32_t k = 0; k < slot_count; ++k) {
        if (!regions[k]) continue;
        mmap(reinterpret_cast<void*>(arena + k * slot_bytes), slot_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        regions[k].reset();
    }
}

struct weft_launch_options {
    uint32_t grid[3], block[3], cluster[3];
    uint32_t registers, dependent;  // 2: on a launch of another call
    uint64_t seed;
    void (*entry)(const uint64_t*);
    void* (*anchor)();
    const uint64_t* arguments;
    const uint64_t* shared;  // of variables in shared memory: offset, bytes, whether a guard
    uint64_t shared_count;
};

// Runs a launch. Its findings and counts stay until `weft_end`.
void weft_begin(const weft_launch_options* o) {
    launch = new Launch;
    launch->grid = {o->grid[0], o->grid[1], o->grid[2]};
    launch->block_size = {o->block[0], o->block[1], o->block[2]};
    launch->cluster = {o->cluster[0], o->cluster[1], o->cluster[2]};
    launch->threads = o->block[0] * o->block[1] * o->block[2];
    launch->cluster_blocks = o->cluster[0] * o->cluster[1] * o->cluster[2];
    launch->blocks = uint64_t(o->grid[0]) * o->grid[1] * o->grid[2];
    launch->registers = o->registers;
    launch->dependent = o->dependent != 0;
    launch->first = o->dependent > 1;
    launch->seed = o->seed;
    launch->random.seed(o->seed);
    launch->eagerness = uint32_t(o->seed % 3);
    launch->entry = o->entry;
    launch->anchor = o->anchor;
    launch->arguments = o->arguments;
    shared_variables.clear();
    for (uint64_t k = 0; k < o->shared_count; ++k) {
        const uint64_t offset = o->shared[3 * k], bytes = o->shared[3 * k + 1];
        shared_variables.push_back({offset, bytes, o->shared[3 * k + 2]});
        while ((offset | bytes) % launch->shared_granule != 0) launch->shared_granule /= 2;
    }
    if (launch->blocks > block_limit) {
        report("too many blocks", 0, 0, "");
        return;
    }
    launch->workers.push_back(std::make_unique<Worker>());
    Worker& first = *launch->workers[0];
    first.running = true;
    work(first);
    const auto unfinished = [&]() -> Worker* {
        for (const auto& w : launch->workers) {
            if (!w->finished) return w.get();
        }
        return nullptr;
    };
    while (Worker* w = unfinished()) hand_over(first, *w);
    for (const auto& w : launch->workers) {
        if (w->thread.joinable()) w->thread.join();
    }
}

uint64_t weft_finding_count() { return launch->findings.size(); }
// The k-th finding as a JSON object without its closing brace, and how often it was made.
const char* weft_finding(uint64_t k, uint64_t* times) {
    auto place = launch->findings.begin();
    std::advance(place, k);
    *times = place->second.times;
    return place->second.json.c_str();
}
uint64_t weft_site_count() { return launch->site_place.size(); }
// Ten numbers of a site: place, kind, object, requests, bytes, turns, ideal turns, degree, sectors, ideal sectors.
void weft_site(uint64_t k, uint64_t* out) {
    const SiteCounts& c = launch->counts[k];
    const uint64_t values[] = {reinterpret_cast<uint64_t>(launch->site_place[k]), launch->site_kind[k], launch->site_object[k],
                               c.requests, c.bytes, c.turns, c.ideal_turns, c.degree, c.sectors, c.ideal_sectors};
    std::memcpy(out, values, sizeof values);
}
uint64_t weft_barriers() { return launch->barriers; }
void weft_end() {
    delete launch;
    launch = nullptr;
    current = nullptr;
}
}
