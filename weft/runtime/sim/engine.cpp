// The engine of the simulator: runs a launch's threads in turns and watches every access they make.
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "weft/launch.hpp"

namespace weft::sim {

// Device memory: a range of addresses with room around every array, so that what lies outside one is nothing else.
constexpr uint64_t slot_bits = 34, slot_count = 64, guard_bytes = 64 << 20;
constexpr uint64_t slot_bytes = 1ull << slot_bits;
constexpr uint32_t worker_limit = 512;
constexpr unsigned char poison = 0xfe;
constexpr uint32_t idle_limit = 200;  // rounds of waiting loops that change nothing, before other blocks have a turn
constexpr uint64_t step_limit = 1ull << 32;

struct Launch {
    Index3 grid{}, block_size{}, cluster{1, 1, 1};
    uint32_t threads = 0, cluster_blocks = 1;
    uint64_t blocks = 0, next_block = 0;
    uint32_t shared_bytes = 0;
    uint64_t seed = 0;
    uint32_t registers = 0;
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
    std::map<std::tuple<std::string, SiteId, SiteId>, Found> findings;
    // grid barrier
    uint64_t grid_arrived = 0;
    std::vector<Fiber*> grid_waiting;
    Message grid_message;
};

namespace {

Launch* launch = nullptr;
Fiber* current = nullptr;
uintptr_t arena = 0;
std::unique_ptr<Region> regions[slot_count];

// ---------------------------------------------------------------- sites

// What an access is, for the table of costs.
enum class Kind : uint32_t { none, read, write, atomic, async_read, async_write };

// An instruction that accesses two memories has two sites: the second is marked in its highest bit.
const void* second(const void* place) { return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(place) | 1ull << 63); }

SiteId site_of(const void* place) {
    auto [entry, added] = launch->site_index.try_emplace(place, SiteId(launch->site_place.size()));
    if (added) {
        launch->site_place.push_back(place);
        launch->counts.emplace_back();
        launch->site_kind.push_back(0);
        launch->site_object.push_back(0);
    }
    return entry->second;
}

#define WEFT_HERE site_of(__builtin_return_address(0))

// ---------------------------------------------------------------- findings

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string thread_json(const Fiber* f) {
    char text[160];
    const Self& s = *f->self;
    std::snprintf(text, sizeof text, "{\"block\":[%u,%u,%u],\"thread\":[%u,%u,%u]}", s.block.x, s.block.y, s.block.z, s.thread.x,
                  s.thread.y, s.thread.z);
    return text;
}

Index3 unflatten(uint64_t k, Index3 size) {
    return {uint32_t(k % size.x), uint32_t(k / size.x % size.y), uint32_t(k / size.x / size.y)};
}

std::string actor_json(Actor a) {
    if (a == nobody) return "null";
    const uint32_t number = number_of(a);
    char text[200];
    const Index3 b = unflatten(block_of(a), launch->grid);
    if (number < launch->threads) {
        const Index3 t = unflatten(number, launch->block_size);
        std::snprintf(text, sizeof text, "{\"block\":[%u,%u,%u],\"thread\":[%u,%u,%u]}", b.x, b.y, b.z, t.x, t.y, t.z);
    } else {
        const AgentName& name = launch->agents[a];
        std::snprintf(text, sizeof text, "{\"block\":[%u,%u,%u],\"agent\":\"%s\",\"of\":%llu}", b.x, b.y, b.z, name.kind.c_str(),
                      static_cast<unsigned long long>(name.of));
    }
    return text;
}

// fields: more of the JSON object, each beginning with a comma.
void report(const char* kind, SiteId site, SiteId other, const std::string& fields) {
    Found& found = launch->findings[{kind, site, other}];
    if (found.times++) return;
    char head[128];
    std::snprintf(head, sizeof head, "{\"kind\":\"%s\",\"site\":%u,\"other\":%u", kind, site, other);
    found.json = head + fields;
}

std::string place_json(const Region* r, uintptr_t address, uint32_t bytes) {
    char text[200];
    if (!r) {
        std::snprintf(text, sizeof text, ",\"address\":%llu,\"bytes\":%u", static_cast<unsigned long long>(address), bytes);
    } else {
        std::snprintf(text, sizeof text, ",\"space\":\"%s\",\"region\":%u,\"offset\":%lld,\"bytes\":%u",
                      r->space == Space::shared ? "shared" : "global", r->number, static_cast<long long>(address - r->base), bytes);
    }
    return text;
}

[[noreturn]] void leave(State state);

// Nothing sensible can follow: the launch ends here.
[[noreturn]] void abort_launch() {
    launch->aborted = true;
    if (current) leave(State::done);
    std::abort();
}

// ---------------------------------------------------------------- shadow

// Who accesses: a thread for itself, or an asynchronous agent for it.
struct Who {
    Actor self;
    uint32_t clock;
    const Knowledge* knowledge;  // of the thread that acts or issued
    SiteId site;
    bool agent = false, async_proxy = false, atomic = false;
};

bool knows(const Who& who, Actor a, uint32_t clock) { return who.knowledge->knows(a, clock); }

bool of_async_proxy(Actor a) {
    if (number_of(a) < launch->threads) return false;
    return launch->agents[a].kind != "cp.async";
}

void race(const Region& r, uintptr_t address, uint32_t bytes, const Who& who, bool write, Actor other, SiteId other_site,
          bool other_write, bool fence) {
    const bool host_agent = number_of(other) >= launch->threads;
    std::string kind = "race";
    std::string fields;
    if (fence) {
        kind = "missing proxy fence";
    } else if (who.agent && write && !other_write) {
        kind = "slot reused";
    } else if (!(who.agent && write) && host_agent && other_write && launch->agents[other].kind == "mbarrier" && current) {
        const auto waited = current->waited.find(uintptr_t(launch->agents[other].of));
        if (waited != current->waited.end()) {
            kind = "wrong phase";
            fields += ",\"waited_parity\":" + std::to_string(waited->second.first) +
                      ",\"waited_phases\":" + std::to_string(waited->second.second);
        }
    }
    report(kind.c_str(), who.site, other_site,
           place_json(&r, address, bytes) + ",\"actor\":" + actor_json(who.self) + ",\"action\":\"" + (write ? "write" : "read") +
               "\",\"by\":" + actor_json(other) + ",\"did\":\"" + (other_write ? "write" : "read") + "\"" + fields);
}

void forget_swizzle(const Region& r, uint64_t offset) {
    if (!current || !current->block || current->block->swizzles.empty() || &r != &current->block->shared) return;
    current->block->swizzles[offset / 16] = 0;
}

// Checks and records one access to cells of a region, within its bounds.
void touch(Region& r, uintptr_t address, uint32_t bytes, bool write, const Who& who) {
    const uint64_t first = (address - r.base) / r.granule, last = (address + bytes - 1 - r.base) / r.granule;
    bool told = false;  // once an access is enough
    for (uint64_t k = first; k <= last; ++k) {
        Cell& c = r.cells[k];
        const uintptr_t place = r.base + k * r.granule;
        const auto own = [&](Actor a) { return a == who.self && !who.agent; };
        const auto unordered = [&](Actor a, uint32_t clock, SiteId site, bool wrote) {
            if (told || own(a)) return;
            const bool seen = knows(who, a, clock);
            const bool fenced =
                !wrote || !who.async_proxy || of_async_proxy(a) || who.knowledge->proxy_knows(a, clock, r.space);
            if (seen && fenced) return;
            race(r, place, bytes, who, write, a, site, wrote, seen);
            told = true;
        };
        if (c.writer != nobody) {
            unordered(c.writer, c.written, c.write_site, true);
        } else if (!told && (c.written == hole || (c.written == never && !write))) {
            const bool outside = c.written == hole;
            report(outside ? "out of bounds" : "uninitialised read", who.site, 0,
                   place_json(&r, place, bytes) + ",\"between\":true,\"actor\":" + actor_json(who.self) + ",\"action\":\"" +
                       (write ? "write" : "read") + "\"");
            told = true;
        }
        if (c.reader == many && (write || launch->accesses[c.read].writes)) {
            for (const Access& a : launch->accesses[c.read].accesses) {
                if ((write || a.write) && !(who.atomic && a.atomic)) unordered(a.actor, a.clock, a.site, a.write);
            }
        } else if (write && c.reader != nobody && c.reader != many) {
            unordered(c.reader, c.read, c.read_site, false);
        }
        if (write && r.space == Space::shared && !who.async_proxy) forget_swizzle(r, k);
        if (write && !who.atomic) {
            if (c.reader == many) launch->accesses.release(c.read);
            c = Cell{who.self, who.clock, who.site, nobody, 0, 0};
        } else if (who.atomic || !r.read_only) {
            if (write && c.writer == nobody) c.written = by_host;  // there is a value from now on
            const bool alone = c.reader == nobody || c.reader == who.self || (c.reader != many && knows(who, c.reader, c.read));
            if (alone && !who.atomic) {
                c.reader = who.self;
                c.read = who.clock;
                c.read_site = who.site;
                continue;
            }
            if (c.reader != many) {
                const uint32_t set = launch->accesses.make();
                if (c.reader != nobody) launch->accesses[set].insert({c.reader, c.read, c.read_site, false, false});
                c.reader = many;
                c.read = set;
            }
            launch->accesses[c.read].insert({who.self, who.clock, who.site, who.atomic, write});
        }
    }
}

Who self(SiteId site) {
    Fiber* f = current;
    return {f->knowledge.self, f->knowledge.clock, &f->knowledge, site};
}

void release_accesses(Region& r) {
    for (Cell& c : r.cells) {
        if (c.reader == many) launch->accesses.release(c.read);
    }
}

// The region that holds an address; null where there is none. Sets `stray` where the address lies outside an array.
Region* region_of(uintptr_t address, uint32_t bytes, bool& stray) {
    Block* b = current->block;
    stray = false;
    if (address - b->shared.base < b->shared.bytes) {
        stray = address + bytes > b->shared.base + b->shared.bytes;
        return &b->shared;
    }
    if (address - arena < slot_bytes * slot_count) {
        Region* r = regions[(address - arena) >> slot_bits].get();
        stray = !r || address < r->base || address + bytes > r->base + r->bytes;
        return r;
    }
    for (const auto& other : launch->all_blocks) {
        if (other && address - other->shared.base < other->shared.bytes) return &other->shared;
    }
    return nullptr;
}

bool mapped(const Region* r, uintptr_t address) {
    return r && r->space == Space::global && address + guard_bytes / 2 > r->base && address < r->base + r->bytes + guard_bytes / 2;
}

struct Segments {
    uintptr_t address;
    bool found;
};
int find_segment(dl_phdr_info* info, size_t, void* data) {
    auto& s = *static_cast<Segments*>(data);
    for (int k = 0; k < info->dlpi_phnum; ++k) {
        const auto& h = info->dlpi_phdr[k];
        if (h.p_type == PT_LOAD && s.address - (info->dlpi_addr + h.p_vaddr) < h.p_memsz) s.found = true;
    }
    return s.found;
}

// An address in no array, no shared memory and no stack: constants of the program are fine, all else is not memory.
void elsewhere(uintptr_t address, uint32_t bytes, bool write, SiteId site) {
    Segments s{address, false};
    dl_iterate_phdr(find_segment, &s);
    if (s.found && !write) return;
    report("out of bounds", site, 0,
           place_json(nullptr, address, bytes) + ",\"actor\":" + thread_json(current) + ",\"action\":\"" + (write ? "write" : "read") +
               "\"");
    abort_launch();
}

void peer_gone(Region& r, uintptr_t address, uint32_t bytes, SiteId site) {
    if (r.space != Space::shared || &r == &current->block->shared) return;
    for (const auto& b : launch->all_blocks) {
        if (b && &b->shared == &r && (b->finished || b->exited)) {
            report("peer exited", site, 0,
                   place_json(&r, address, bytes) + ",\"actor\":" + thread_json(current) + ",\"peer\":" + std::to_string(b->rank));
        }
    }
}

void count(SiteId site, Kind kind, const Region& r, uintptr_t address, uint32_t bytes) {
    Fiber* f = current;
    launch->site_kind[site] = uint32_t(kind) | bytes << 8;
    launch->site_object[site] = uint64_t(r.space) << 63 | uint64_t(r.number) << 40 |
                                (r.space == Space::shared ? (address - r.base) & ((1ull << 40) - 1) : 0);
    Warp& warp = f->block->warps[f->warp];
    warp.counts.add(site, f->lane, address, bytes, r.space, launch->counts, warp.live);
}

// A thread touches its own registers, which products may be writing.
void accumulator(Fiber& f, uintptr_t address, uint32_t bytes, bool write, const void* place) {
    for (const InFlight& r : f.in_flight) {
        if (address < r.address + r.bytes && r.address < address + bytes) {
            report("registers in flight", site_of(place), 0,
                   ",\"actor\":" + thread_json(&f) + ",\"action\":\"" + (write ? "write" : "read") + "\"");
        }
    }
    if (!write) return;
    for (const auto& [from, size] : f.accumulators) {
        if (address < from + size && from < address + bytes) f.fenced = false;
    }
}

// Every access of the program's own text comes here.
inline void access(const void* pointer, uint32_t bytes, bool write, uint32_t alignment, const void* place) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    Fiber* f = current;
    if (!f) return;
    if (address - f->stack < Stacks::usable()) {
        if (!f->accumulators.empty()) accumulator(*f, address, bytes, write, place);
        return;
    }
    const SiteId site = site_of(place);
    if (++f->steps > step_limit) {
        report("does not end", site, 0, ",\"actor\":" + thread_json(f));
        abort_launch();
    }
    bool stray;
    Region* r = region_of(address, bytes, stray);
    if (!r && !stray) {
        elsewhere(address, bytes, write, site);
        return;
    }
    if (stray) {
        report("out of bounds", site, 0,
               place_json(r, address, bytes) + ",\"actor\":" + thread_json(f) + ",\"action\":\"" + (write ? "write" : "read") + "\"");
        if (!mapped(r, address)) abort_launch();
        return;
    }
    if (address % alignment) {
        report("misaligned", site, 0,
               place_json(r, address, bytes) + ",\"actor\":" + thread_json(f) + ",\"alignment\":" + std::to_string(alignment) +
                   ",\"action\":\"" + (write ? "write" : "read") + "\"");
        abort_launch();
    }
    if (write && r->read_only) {
        report("write to an input", site, 0, place_json(r, address, bytes) + ",\"actor\":" + thread_json(f));
    }
    if (write) ++launch->progress;
    if (!r->untracked) {
        if (r->space == Space::shared) peer_gone(*r, address, bytes, site);
        touch(*r, address, bytes, write, self(site));
    }
    count(site, write ? Kind::write : Kind::read, *r, address, bytes);
}

// ---------------------------------------------------------------- taking turns

void to_scheduler() {
    Fiber* f = current;
    Worker* w = f->block->worker;
    current = nullptr;
    switch_to(f->context, w->context);
    current = f;
}

[[noreturn]] void leave(State state) {
    current->state = state;
    to_scheduler();
    std::abort();  // never resumed
}

void wait(const char* what, SiteId site) {
    Fiber* f = current;
    f->state = State::waiting;
    f->waits_for = what;
    f->wait_site = site;
    to_scheduler();
}

void wake(Fiber* f) {
    f->state = State::ready;
    f->block->ready.push_back(f);
    ++launch->progress;
}

// Under most seeds another thread may come first, so that atomics of many threads mix.
void give_way() {
    if (launch->seed == 0 || launch->random() % 4 != 0) return;
    current->state = State::ready;
    current->block->ready.push_back(current);
    to_scheduler();
}

void spin(SiteId site, const char* what) {
    Fiber* f = current;
    f->state = State::spinning;
    f->waits_for = what;
    f->wait_site = site;
    f->block->spinning.push_back(f);
    to_scheduler();
}

void release_barrier(Block& b, Barrier& barrier) {
    ++launch->barriers;
    for (Fiber* f : barrier.waiting) {
        adopt(f->knowledge, barrier.message);
        ++f->knowledge.clock;
        wake(f);
    }
    barrier = Barrier{};
    for (Warp& w : b.warps) w.counts.close(launch->counts);
}

void fiber_main() {
    Fiber* f = current;
    Block& b = *f->block;
    Self own{};
    own.thread = unflatten(f->number, launch->block_size);
    own.block = b.index;
    own.block_size = launch->block_size;
    own.grid_size = launch->grid;
    own.linear = f->number;
    own.cluster_rank = b.rank;
    own.cluster_size = launch->cluster_blocks;
    f->self = &own;
    launch->entry(launch->arguments);
    leave(State::done);
}

void thread_ended(Fiber& f) {
    Block& b = *f.block;
    --b.live;
    ++b.exited;
    ++launch->progress;
    b.warps[f.warp].live &= ~(1u << f.lane);
    for (Groups* groups : {&f.copies, &f.bulk}) {
        if (groups == &f.bulk && !launch->aborted && !(groups->pending.empty() && groups->open.empty())) {
            report("bulk copy unfinished", f.bulk_site, 0, ",\"actor\":" + actor_json(f.knowledge.self));
        }
        for (const auto& group : groups->pending) {
            for (const auto& work : group.works) work->run();
        }
        for (const auto& work : groups->open) work->run();
    }
    if (launch->cluster_blocks > 1) b.known_at_exit.take(f.knowledge);
}

bool perform_some(Block& b, bool all) {
    auto& list = b.transfers;
    list.erase(std::remove_if(list.begin(), list.end(), [](const WorkPointer& w) { return w->done; }), list.end());
    if (list.empty()) return false;
    if (all) {
        const auto now = list;
        list.clear();
        for (const auto& w : now) w->run();
    } else {
        const size_t k = launch->random() % list.size();
        const WorkPointer w = list[k];
        list.erase(list.begin() + int64_t(k));
        w->run();
    }
    ++launch->progress;
    return true;
}

std::string waits_json() {
    // where the threads of live blocks wait, those of a warp at one place together
    std::string text;
    int told = 0;
    for (const auto& b : launch->all_blocks) {
        if (!b || b->finished) continue;
        std::map<std::pair<SiteId, std::string>, std::pair<uint32_t, uint32_t>> places;  // count, first
        for (uint32_t k = 0; k < launch->threads; ++k) {
            const Fiber& f = b->fibers[k];
            if (f.state == State::done || f.state == State::ready) continue;
            auto [entry, added] = places.try_emplace({f.wait_site, f.waits_for}, std::make_pair(0u, k));
            ++entry->second.first;
        }
        for (const auto& [key, value] : places) {
            if (told++ >= 8) break;
            text += std::string(text.empty() ? "" : ",") + "{\"site\":" + std::to_string(key.first) + ",\"for\":" + quoted(key.second) +
                    ",\"threads\":" + std::to_string(value.first) + ",\"first\":" + actor_json(actor(b->number, value.second)) + "}";
        }
    }
    return ",\"waits\":[" + text + "]";
}

// Another block that may go on, or a new one; null if there is none.
Worker* next_worker(Worker& me);

void hand_over(Worker& me, Worker& to) {
    std::unique_lock<std::mutex> lock(launch->mutex);
    me.running = false;
    to.running = true;
    to.awake.notify_one();
    me.awake.wait(lock, [&] { return me.running; });
}

void stuck_at_barrier(Block& b, bool& released) {
    // threads that ended can come to no barrier any more: tell it once, and let the others go on
    for (Barrier& barrier : b.barriers) {
        if (barrier.waiting.empty() || barrier.expected < barrier.arrived) continue;
        if (b.exited && barrier.arrived == b.live && barrier.waiting.size() == b.live) {
            uint32_t gone = 0;
            while (b.fibers[gone].state != State::done) ++gone;
            report("divergent barrier", barrier.site, 0,
                   ",\"actor\":" + actor_json(barrier.waiting[0]->knowledge.self) + ",\"by\":" + actor_json(actor(b.number, gone)) +
                       ",\"arrived\":" + std::to_string(barrier.arrived) + ",\"expected\":" + std::to_string(barrier.expected) +
                       ",\"ended\":" + std::to_string(b.exited));
            release_barrier(b, barrier);
            released = true;
        }
    }
}

// An mbarrier that has all its arrivals, and waits for bytes that no copy brings.
bool bytes_missing() {
    bool found = false;
    for (const auto& b : launch->all_blocks) {
        if (!b) continue;
        for (auto& [address, m] : b->mbarriers) {
            if (m.waiting.empty() || m.left != 0 || m.bytes == 0) continue;
            report("byte count", m.expect_site, m.copy_site,
                   ",\"actor\":" + actor_json(m.waiting[0].first->knowledge.self) + ",\"bytes_missing\":" + std::to_string(m.bytes));
            found = true;
        }
    }
    return found;
}

// Lanes that wait for others of their warp which have ended or wait elsewhere.
bool warp_apart(Block& b) {
    for (uint32_t k = 0; k < launch->threads; ++k) {
        const Fiber& f = b.fibers[k];
        if (!f.in_collective) continue;
        for (uint32_t l = 0; l < 32; ++l) {
            const uint32_t other = f.warp * 32 + l;
            if (!(f.gave_mask >> l & 1) || other >= launch->threads || b.fibers[other].in_collective) continue;
            const Fiber& o = b.fibers[other];
            if (o.state == State::done) {
                report("shuffle mask", f.wait_site, 0,
                       ",\"actor\":" + actor_json(f.knowledge.self) + ",\"mask\":" + std::to_string(f.gave_mask) + ",\"absent\":" +
                           std::to_string(l) + ",\"exists\":true");
            } else {
                report("divergent warp", f.wait_site, o.wait_site,
                       ",\"actor\":" + actor_json(f.knowledge.self) + ",\"by\":" + actor_json(o.knowledge.self) + ",\"kinds\":true");
            }
            return true;
        }
    }
    return false;
}

// Nobody in the block can go on by itself. False ends the launch.
bool stuck(Block& b) {
    bool released = false;
    stuck_at_barrier(b, released);
    if (released) return true;
    b.tried = launch->progress;
    if (Worker* other = next_worker(*b.worker)) {
        hand_over(*b.worker, *other);
        return !launch->aborted;
    }
    if (launch->progress != b.tried) return true;
    SiteId site = 0;
    for (uint32_t k = 0; k < launch->threads && !site; ++k) {
        if (b.fibers[k].state == State::waiting || b.fibers[k].state == State::spinning) site = b.fibers[k].wait_site;
    }
    bool apart = false;
    for (const auto& each : launch->all_blocks) apart = apart || (each && !each->finished && warp_apart(*each));
    if (!apart && !bytes_missing()) report("deadlock", site, 0, waits_json());
    launch->aborted = true;
    return false;
}

void run_block(Block& b) {
    Worker& w = *b.worker;
    while (!launch->aborted) {
        if (launch->eagerness == 1) perform_some(b, true);
        if (launch->eagerness == 2 && launch->random() % 4 == 0) perform_some(b, false);
        if (b.ready.empty()) {
            if (perform_some(b, false)) continue;
            if (b.live == 0) break;
            if (b.tried != launch->progress) b.idle = 0;
            if (!b.spinning.empty() && b.idle < idle_limit) {
                ++b.idle;
                b.tried = launch->progress;
                b.ready.swap(b.spinning);
                for (Fiber* f : b.ready) f->state = State::ready;
                continue;
            }
            if (!stuck(b)) return;
            if (!b.spinning.empty()) {
                b.ready.swap(b.spinning);
                for (Fiber* f : b.ready) f->state = State::ready;
            }
            continue;
        }
        Fiber* f;
        if (launch->seed == 0) {
            f = b.ready.front();
            b.ready.erase(b.ready.begin());
        } else {
            const size_t k = launch->random() % b.ready.size();
            f = b.ready[k];
            b.ready[k] = b.ready.back();
            b.ready.pop_back();
        }
        current = f;
        switch_to(w.context, f->context);
        current = nullptr;
        if (f->state == State::done) thread_ended(*f);
    }
}

int find_tls(dl_phdr_info* info, size_t, void* data) {
    auto& [address, base, bytes] = *static_cast<std::tuple<uintptr_t, uintptr_t, uint64_t>*>(data);
    for (int k = 0; k < info->dlpi_phnum; ++k) {
        const auto& h = info->dlpi_phdr[k];
        if (h.p_type == PT_LOAD && address - (info->dlpi_addr + h.p_vaddr) < h.p_memsz) {
            for (int t = 0; t < info->dlpi_phnum; ++t) {
                if (info->dlpi_phdr[t].p_type == PT_TLS) {
                    base = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
                    bytes = info->dlpi_phdr[t].p_memsz;
                }
            }
            return 1;
        }
    }
    return 0;
}

// A variable in shared memory, from the program's symbols; what lies between them is nobody's. `guard`: the compiler's own
// note that a variable needs no construction.
struct SharedVariable {
    uint64_t offset, bytes, guard;
};
std::vector<SharedVariable> shared_variables;

void make_block(Worker& w, uint64_t number) {
    auto owner = std::make_unique<Block>();
    Block& b = *owner;
    b.number = uint32_t(number);
    b.index = unflatten(number, launch->grid);
    const Index3 c = launch->cluster;
    b.rank = b.index.x % c.x + c.x * (b.index.y % c.y + c.y * (b.index.z % c.z));
    b.worker = &w;
    w.block = &b;
    launch->anchor();
    std::tuple<uintptr_t, uintptr_t, uint64_t> tls{reinterpret_cast<uintptr_t>(launch->entry), 0, 0};
    dl_iterate_phdr(find_tls, &tls);
    b.shared.base = std::get<1>(tls);
    b.shared.bytes = std::get<2>(tls);
    b.shared.space = Space::shared;
    b.shared.number = uint32_t(number);
    b.shared.cells = std::move(w.cells);
    if (b.shared.cells.empty()) b.shared.track(hole);
    for (const auto& [offset, bytes, guard] : shared_variables) {
        std::fill_n(b.shared.cells.begin() + int64_t(offset), bytes, Cell{nobody, guard ? by_host : never});
        std::memset(reinterpret_cast<void*>(b.shared.base + offset), poison, bytes);
    }
    const uint32_t n = launch->threads;
    b.actors = n;
    b.fibers = std::make_unique<Fiber[]>(n);
    b.live = n;
    b.warps.resize((n + 31) / 32);
    b.warpgroups.resize((n + 127) / 128);
    if (!w.stacks) w.stacks = std::make_unique<Stacks>(n);
    for (uint32_t k = 0; k < n; ++k) {
        Fiber& f = b.fibers[k];
        f.block = &b;
        f.number = k;
        f.lane = k % 32;
        f.warp = k / 32;
        f.stack = reinterpret_cast<uintptr_t>(w.stacks->low(k));
        f.knowledge.self = actor(b.number, k);
        b.warps[f.warp].live |= 1u << f.lane;
        prepare(f.context, w.stacks->low(k), Stacks::usable(), fiber_main);
        b.ready.push_back(&f);
    }
    if (launch->seed != 0) std::shuffle(b.ready.begin(), b.ready.end(), launch->random);
    launch->all_blocks.push_back(std::move(owner));
    if (launch->cluster_blocks > 1) {
        const uint64_t key = (uint64_t(b.index.z / c.z) * launch->grid.y + b.index.y / c.y) * launch->grid.x + b.index.x / c.x;
        launch->clusters[key].blocks.push_back(&b);
    }
    ++launch->progress;
}

Cluster& cluster_of(const Block& b) {
    const Index3 c = launch->cluster;
    return launch->clusters[(uint64_t(b.index.z / c.z) * launch->grid.y + b.index.y / c.y) * launch->grid.x + b.index.x / c.x];
}

// What other blocks did to a block's shared memory must be known to it when it ends: else it may come later than that.
void accesses_after_exit(Block& b) {
    const Message& m = b.known_at_exit;
    const auto known = [&](Actor a, uint32_t clock) { return block_of(a) == b.number || (m.seen && clock <= m.seen->at(a)); };
    const auto tell = [&](uint64_t k, Actor a, SiteId site, bool write) {
        report("peer exited", site, 0,
               place_json(&b.shared, b.shared.base + k, 1) + ",\"actor\":" + actor_json(a) + ",\"peer\":" + std::to_string(b.rank) +
                   ",\"action\":\"" + (write ? "write" : "read") + "\"");
    };
    for (const auto& [offset, bytes, guard] : shared_variables) {
        for (uint64_t k = offset; k < offset + bytes; ++k) {
            const Cell& c = b.shared.cells[k];
            if (c.writer != nobody && !known(c.writer, c.written)) tell(k, c.writer, c.write_site, true);
            if (c.reader == many) {
                for (const Access& a : launch->accesses[c.read].accesses) {
                    if (!known(a.actor, a.clock)) tell(k, a.actor, a.site, a.write);
                }
            } else if (c.reader != nobody && !known(c.reader, c.read)) {
                tell(k, c.reader, c.read_site, false);
            }
        }
    }
}

void end_block(Block& b) {
    for (Warp& w : b.warps) w.counts.close(launch->counts);
    if (launch->cluster_blocks > 1 && !launch->aborted) accesses_after_exit(b);
    b.finished = true;
    ++launch->progress;
    if (launch->cluster_blocks > 1 && !launch->aborted) {
        // its shared memory belongs to its cluster until all of that has ended
        Cluster& c = cluster_of(b);
        const auto ended = [&] {
            return c.blocks.size() == launch->cluster_blocks &&
                   std::all_of(c.blocks.begin(), c.blocks.end(), [](const Block* o) { return o->finished; });
        };
        while (!ended() && !launch->aborted) {
            b.tried = launch->progress;
            Worker* other = next_worker(*b.worker);
            if (other) {
                hand_over(*b.worker, *other);
            } else {
                report("deadlock", 0, 0, waits_json());
                launch->aborted = true;
            }
        }
    }
    release_accesses(b.shared);
    b.worker->cells = std::move(b.shared.cells);
    b.shared.bytes = 0;  // the next block of this worker has the same addresses
    if (launch->cluster_blocks == 1) {
        auto& all = launch->all_blocks;
        all.erase(std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.get() == &b; }));
    }
}

// The order in which blocks start: cluster after cluster.
uint64_t block_number(uint64_t k) {
    if (launch->cluster_blocks == 1) return k;
    const Index3 c = launch->cluster, g = launch->grid;
    const Index3 counts{g.x / c.x, g.y / c.y, g.z / c.z};
    const Index3 which = unflatten(k / launch->cluster_blocks, counts), inside = unflatten(k % launch->cluster_blocks, c);
    const Index3 at{which.x * c.x + inside.x, which.y * c.y + inside.y, which.z * c.z + inside.z};
    return at.x + uint64_t(g.x) * (at.y + uint64_t(g.y) * at.z);
}

void work(Worker& w) {
    while (!launch->aborted && launch->next_block < launch->blocks) {
        make_block(w, block_number(launch->next_block++));
        run_block(*w.block);
        end_block(*w.block);
        w.block = nullptr;
    }
    w.finished = true;
}

void worker_main(Worker& w) {
    {
        std::unique_lock<std::mutex> lock(launch->mutex);
        w.awake.wait(lock, [&] { return w.running; });
    }
    work(w);
    // whoever is unfinished goes on, the first worker last
    Worker* to = launch->workers[0].get();
    for (const auto& other : launch->workers) {
        if (!other->finished && (to->finished || other->block)) to = other.get();
    }
    std::unique_lock<std::mutex> lock(launch->mutex);
    w.running = false;
    to->running = true;
    to->awake.notify_one();
}

Worker* next_worker(Worker& me) {
    for (const auto& other : launch->workers) {
        if (other.get() == &me || other->finished) continue;
        if (other->block && other->block->tried != launch->progress) return other.get();
    }
    if (launch->next_block < launch->blocks && launch->workers.size() < worker_limit) {
        launch->workers.push_back(std::make_unique<Worker>());
        Worker& made = *launch->workers.back();
        made.thread = std::thread([&made] { worker_main(made); });
        return &made;
    }
    return nullptr;
}

}  // namespace

}  // namespace weft::sim

#include "weft/warps.hpp"
#include "weft/agents.hpp"
#include "weft/tensors.hpp"
#include "weft/hooks.hpp"
