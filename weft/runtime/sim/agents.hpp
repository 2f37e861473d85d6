// Atomics, and the units that work beside the threads: asynchronous copies, mbarriers, bulk copies, clusters, registers.
#pragma once
#include "weft/launch.hpp"

namespace weft::sim {
namespace {

// ---------------------------------------------------------------- knowledge

Actor new_agent(Block& b, const char* kind, uint64_t of) {
    const Actor a = actor(b.number, b.actors++);
    launch->agents[a] = {kind, of};
    return a;
}

void learn(Knowledge& k, Actor a, uint32_t clock) {
    if (a == nobody || clock == 0 || k.knows(a, clock)) return;
    auto more = k.seen ? std::make_shared<Vector>(*k.seen) : std::make_shared<Vector>();
    more->block = block_of(k.self);
    more->raise(a, clock);
    k.seen = more;
}

// All the thread knows of a memory is visible to the asynchronous proxy from here on.
void fence_proxy(Knowledge& k, Space space) {
    const auto s = uint32_t(space);
    auto all = k.seen ? std::make_shared<Vector>(*k.seen) : std::make_shared<Vector>();
    all->block = block_of(k.self);
    if (k.proxy[s]) all->join(*k.proxy[s]);
    k.proxy[s] = all;
    k.fenced[s] = k.clock;
}

Message message_of(const Knowledge& k) {
    Message m;
    m.take(k);
    return m;
}

// ---------------------------------------------------------------- accesses of agents

Who by(Actor agent, uint32_t clock, SiteId site, bool async_proxy) {
    return {agent, clock, &current->knowledge, site, true, async_proxy, false};
}

// Checks bounds and alignment of a range that a unit will access, then its cells. False if it must not be touched.
bool reach(uintptr_t address, uint32_t bytes, bool write, uint32_t alignment, const Who& who) {
    bool stray;
    Region* r = region_of(address, bytes, stray);
    const std::string tail = ",\"actor\":" + thread_json(current) + ",\"action\":\"" + (write ? "write" : "read") + "\"";
    if (!r || stray) {
        report("out of bounds", who.site, 0, place_json(r, address, bytes) + tail);
        if (!mapped(r, address) || !mapped(r, address + bytes)) abort_launch();
        return false;
    }
    const uintptr_t place = r->space == Space::shared ? address - r->base : address;
    if (place % alignment) {
        report("misaligned", who.site, 0, place_json(r, address, bytes) + tail + ",\"alignment\":" + std::to_string(alignment));
        abort_launch();
    }
    if (write && r->read_only) report("write to an input", who.site, 0, place_json(r, address, bytes) + tail);
    if (!r->untracked) touch(*r, address, bytes, write, who);
    return true;
}

void note(SiteId site, Kind kind, const Region& r, uintptr_t address, uint32_t bytes) {
    launch->site_kind[site] = uint32_t(kind) | bytes << 8;
    launch->site_object[site] = uint64_t(r.space) << 63 | uint64_t(r.number) << 40 |
                                (r.space == Space::shared ? (address - r.base) & ((1ull << 40) - 1) : 0);
}

// A copy of a unit, which no lanes make together.
void count_bulk(SiteId site, Kind kind, uintptr_t address, uint64_t bytes) {
    bool stray;
    Region* r = region_of(address, 1, stray);
    if (!r) return;
    note(site, kind, *r, address, 16);
    SiteCounts& counts = launch->counts[site];
    counts.requests += 1;
    counts.bytes += bytes;
    if (r->space == Space::global) {
        counts.sectors += (address + bytes + 31) / 32 - address / 32;
        counts.ideal_sectors += (bytes + 31) / 32;
    } else {
        counts.turns += (bytes + 127) / 128;
        counts.ideal_turns += (bytes + 127) / 128;
        counts.degree = std::max<uint64_t>(counts.degree, 1);
    }
}

bool at_once() { return launch->eagerness == 1 || (launch->eagerness == 2 && launch->random() % 2 == 0); }

void commit(Groups& g) {
    g.pending.push_back({std::move(g.open), ++g.stamp});
    g.open.clear();
}

// Completes all groups but the `left` latest; gives the stamp of the last one that is complete.
uint32_t complete(Groups& g, uint32_t left) {
    uint32_t stamp = 0;
    while (g.pending.size() > left) {
        for (const auto& work : g.pending.front().works) work->run();
        stamp = g.pending.front().stamp;
        g.pending.pop_front();
    }
    return stamp;
}

// ---------------------------------------------------------------- mbarriers

Block& block_at(uint32_t rank) {
    for (;;) {
        for (Block* b : cluster_of(*current->block).blocks) {
            if (b->rank == rank) return *b;
        }
        spin(current->wait_site, "the blocks of its cluster to start");
    }
}

uintptr_t translate(const void* shared, uint32_t rank, SiteId site) {
    const auto address = reinterpret_cast<uintptr_t>(shared);
    Block& own = *current->block;
    current->wait_site = site;
    if (address - own.shared.base >= own.shared.bytes || rank >= launch->cluster_blocks) {
        report("out of bounds", site, 0,
               place_json(nullptr, address, 1) + ",\"actor\":" + thread_json(current) + ",\"action\":\"read\",\"rank\":" +
                   std::to_string(rank));
        abort_launch();
    }
    if (rank == own.rank) return address;
    return address - own.shared.base + block_at(rank).shared.base;
}

Block& owner(uintptr_t address) {
    for (const auto& b : launch->all_blocks) {
        if (b && address - b->shared.base < b->shared.bytes) return *b;
    }
    return *current->block;
}

Mbarrier& mbarrier(uintptr_t address, SiteId site, bool by_copy) {
    Mbarrier& m = owner(address).mbarriers[address];
    const Fiber& f = *current;
    if (!m.valid || !f.knowledge.knows(m.maker, m.made)) {
        bool stray;
        report("mbarrier not initialised", site, 0, place_json(region_of(address, 8, stray), address, 8) + ",\"actor\":" + thread_json(&f));
        if (!m.valid) abort_launch();
    }
    if (by_copy && !m.fenced) {
        bool stray;
        report("missing proxy fence", site, 0,
               place_json(region_of(address, 8, stray), address, 8) + ",\"actor\":" + thread_json(&f) +
                   ",\"action\":\"write\",\"by\":" + actor_json(m.maker) + ",\"did\":\"write\"");
        m.fenced = true;
    }
    return m;
}

bool over(const Mbarrier& m, uint32_t parity) { return (m.phase & 1) != (parity & 1); }

void advance(Mbarrier& m) {
    if (m.left != 0 || m.bytes > 0) return;
    if (m.bytes < 0) {
        report("byte count", m.copy_site, m.expect_site, ",\"actor\":null,\"bytes_too_many\":" + std::to_string(-m.bytes));
        m.bytes = 0;
    }
    ++m.phase;
    m.left = m.count;
    m.complete.take(m.gathering);
    if (!m.complete.seen) {
        m.complete.seen = std::make_shared<Vector>();
        m.complete.seen->block = m.block->number;
    }
    m.complete.seen->raise(m.agent, m.phase);
    m.gathering = Message{};
    ++launch->progress;
    auto waiting = std::move(m.waiting);
    m.waiting.clear();
    for (auto& [f, parity] : waiting) {
        if (over(m, parity)) wake(f);
        else m.waiting.emplace_back(f, parity);
    }
}

void arrive(Mbarrier& m, uint32_t bytes, bool arrives, const Message& from, SiteId site) {
    if (bytes) {
        m.bytes += bytes;
        m.expect_site = site;
    }
    if (arrives) {
        if (m.left == 0) {
            report("mbarrier phase", site, m.expect_site,
                   ",\"actor\":" + thread_json(current) + ",\"arrivals\":" + std::to_string(m.count + 1));
        } else {
            --m.left;
        }
        m.gathering.take(from);
    }
    advance(m);
}

// ---------------------------------------------------------------- atomics

void atomic_access(uintptr_t a, uint32_t bytes, Atomic what, Order order, Scope scope, SiteId site) {
    Fiber& f = *current;
    Knowledge& k = f.knowledge;
    bool stray;
    Region* r = region_of(a, bytes, stray);
    const bool reads = what != Atomic::store, writes = what != Atomic::load;
    if (!r || stray || a % bytes) {
        report(!r || stray ? "out of bounds" : "misaligned", site, 0,
               place_json(r, a, bytes) + ",\"actor\":" + thread_json(&f) + ",\"action\":\"" + (writes ? "write" : "read") +
                   "\",\"alignment\":" + std::to_string(bytes));
        if (!mapped(r, a) || a % bytes) abort_launch();
        return;
    }
    Who who = self(site);
    who.atomic = true;
    if (!r->untracked) {
        if (r->space == Space::shared) peer_gone(*r, a, bytes, site);
        if (writes && reads && r->cells[(a - r->base) / r->granule].written == never) touch(*r, a, bytes, false, who);
        touch(*r, a, bytes, writes, who);
    }
    if (writes && r->read_only) report("write to an input", site, 0, place_json(r, a, bytes) + ",\"actor\":" + thread_json(&f));
    count(site, writes && reads ? Kind::atomic : writes ? Kind::write : Kind::read, *r, a, bytes);
    auto& there = launch->released[a];
    const bool near = there.block == f.block->number || (scope != Scope::block && there.scope != Scope::block);
    if (reads && near && !there.message.empty()) {
        if (uint32_t(order) & uint32_t(Order::acquire)) acquire(k, there.message);
        else f.heard.take(there.message);
    }
    if (writes) {
        const Message own = uint32_t(order) & uint32_t(Order::release) ? message_of(k) : f.at_fence;
        if (!reads) there.message = Message{};
        there.message.take(own);
        there.scope = scope;
        there.block = f.block->number;
        if (uint32_t(order) & uint32_t(Order::release)) ++k.clock;
        if (what != Atomic::exchange && what != Atomic::compare_exchange) ++launch->progress;
    }
}

}  // namespace
}  // namespace weft::sim

extern "C" {

// ---------------------------------------------------------------- atomics and fences

void weft_atomic(const void* address, uint32_t bytes, Atomic what, Order order, Scope scope) {
    const SiteId site = WEFT_HERE;
    give_way();
    atomic_access(reinterpret_cast<uintptr_t>(address), bytes, what, order, scope, site);
}

void weft_fence(Scope) {
    Fiber& f = *current;
    acquire(f.knowledge, f.heard);
    f.heard = Message{};
    f.at_fence = message_of(f.knowledge);
    ++f.knowledge.clock;
}

void weft_check_registers(const void* values, uint32_t bytes, const char* what) {
    uint32_t words;
    for (uint32_t k = 0; k < bytes; k += 4) {
        std::memcpy(&words, static_cast<const char*>(values) + k, 4);
        if (words == 0xfefefefeu) {
            report("uninitialised registers", WEFT_HERE, 0, ",\"actor\":" + thread_json(current) + ",\"what\":" + quoted(what));
            return;
        }
    }
}

// ---------------------------------------------------------------- cp.async

void weft_copy_async(void* shared, const void* global, uint32_t bytes, uint32_t read) {
    const void* const here = __builtin_return_address(0);
    const SiteId site = site_of(here), store = site_of(second(here));
    Fiber& f = *current;
    Groups& g = f.copies;
    if (g.agent == nobody) g.agent = new_agent(*f.block, "cp.async", f.number);
    const auto to = reinterpret_cast<uintptr_t>(shared), from = reinterpret_cast<uintptr_t>(global);
    bool stray;
    bool fine = true;
    if (read) {
        fine = reach(from, read, false, bytes, by(g.agent, g.stamp + 1, site, false));
        if (Region* r = region_of(from, read, stray); fine && r) count(site, Kind::async_read, *r, from, read);
    }
    if (!reach(to, bytes, true, bytes, by(g.agent, g.stamp + 1, store, false)) || !fine) return;
    count(store, Kind::async_write, *region_of(to, bytes, stray), to, bytes);
    ++f.knowledge.clock;
    auto work = std::make_shared<Work>();
    work->happen = [=] {
        std::memcpy(shared, global, read);
        std::memset(static_cast<char*>(shared) + read, 0, bytes - read);
    };
    if (at_once()) work->run();
    else std::memset(shared, poison, bytes);
    g.open.push_back(std::move(work));
}

void weft_commit_copies() { commit(current->copies); }

void weft_wait_copies(uint32_t left) {
    Fiber& f = *current;
    learn(f.knowledge, f.copies.agent, complete(f.copies, left));
}

void weft_arrive_on_copies(void* barrier) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    Groups& g = f.copies;
    Mbarrier& m = mbarrier(reinterpret_cast<uintptr_t>(barrier), site, false);
    // it arrives when all copies issued so far are done: what comes later has a later clock
    const uint32_t stamp = ++g.stamp;
    std::vector<WorkPointer> before;
    for (const auto& group : g.pending) before.insert(before.end(), group.works.begin(), group.works.end());
    before.insert(before.end(), g.open.begin(), g.open.end());
    Message from;
    from.seen = std::make_shared<Vector>();
    from.seen->block = f.block->number;
    if (g.agent != nobody) from.seen->raise(g.agent, stamp);
    auto work = std::make_shared<Work>();
    work->happen = [=, &m] {
        for (const auto& w : before) w->run();
        arrive(m, 0, true, from, site);
    };
    f.block->transfers.push_back(std::move(work));
}

// ---------------------------------------------------------------- mbarriers

void weft_mbarrier_init(void* barrier, uint32_t count) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    const auto address = reinterpret_cast<uintptr_t>(barrier);
    if (!reach(address, 8, true, 8, self(site))) return;
    std::memset(barrier, 0, 8);
    Mbarrier& m = owner(address).mbarriers[address];
    m = Mbarrier{};
    m.count = m.left = count;
    m.address = address;
    m.block = f.block;
    m.agent = new_agent(*f.block, "mbarrier", address);
    m.maker = f.knowledge.self;
    m.made = f.knowledge.clock;
    m.valid = true;
}

void weft_mbarrier_fence_init() {
    for (auto& [address, m] : current->block->mbarriers) m.fenced = m.fenced || m.maker == current->knowledge.self;
}

void weft_mbarrier_invalidate(void* barrier) {
    mbarrier(reinterpret_cast<uintptr_t>(barrier), WEFT_HERE, false).valid = false;
}

void weft_mbarrier_arrive(void* barrier, uint32_t bytes, bool arrives, int32_t rank) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    const uintptr_t address = rank < 0 ? reinterpret_cast<uintptr_t>(barrier) : translate(barrier, uint32_t(rank), site);
    Mbarrier& m = mbarrier(address, site, false);
    if (rank >= 0 && m.block->finished) {
        report("peer exited", site, 0,
               place_json(&m.block->shared, address, 8) + ",\"actor\":" + thread_json(&f) + ",\"peer\":" + std::to_string(rank));
    }
    arrive(m, bytes, arrives, message_of(f.knowledge), site);
    if (arrives) ++f.knowledge.clock;
}

bool weft_mbarrier_test(void* barrier, uint32_t parity) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    const auto address = reinterpret_cast<uintptr_t>(barrier);
    Mbarrier& m = mbarrier(address, site, false);
    if (!over(m, parity)) {
        spin(site, "a phase of its mbarrier");
        return false;
    }
    acquire(f.knowledge, m.complete);
    f.waited[address] = {parity & 1, m.phase};
    return true;
}

void weft_mbarrier_wait(void* barrier, uint32_t parity) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    const auto address = reinterpret_cast<uintptr_t>(barrier);
    Mbarrier& m = mbarrier(address, site, false);
    while (!over(m, parity)) {
        m.waiting.emplace_back(&f, parity);
        wait(parity & 1 ? "the phase of parity 1 of its mbarrier" : "the phase of parity 0 of its mbarrier", site);
    }
    acquire(f.knowledge, m.complete);
    f.waited[address] = {parity & 1, m.phase};
}

// ---------------------------------------------------------------- bulk copies

void weft_fence_proxy(bool of_shared) {
    fence_proxy(current->knowledge, of_shared ? Space::shared : Space::global);
    if (of_shared) weft_mbarrier_fence_init();
}

}

namespace weft::sim {
namespace {

void refuse_copy(SiteId site, const char* why) {
    report("bad copy", site, 0, ",\"actor\":" + thread_json(current) + ",\"rule\":" + quoted(why));
    abort_launch();
}

// One destination of a load: its block's place and mbarrier. `move` puts the bytes there.
void deliver(uintptr_t to, uint64_t bytes, uintptr_t barrier, SiteId site, std::function<void()> move) {
    Fiber& f = *current;
    Mbarrier& m = mbarrier(barrier, site, true);
    m.copy_site = site;
    auto work = std::make_shared<Work>();
    work->happen = [=, &m, phase = m.phase] {
        move();
        if (m.phase != phase) {  // it ended without these bytes: fewer were announced
            report("byte count", site, m.expect_site, ",\"actor\":null,\"bytes_too_many\":" + std::to_string(bytes));
        }
        m.bytes -= int64_t(bytes);
        advance(m);
    };
    (void)to;
    f.block->transfers.push_back(std::move(work));
}

void count_sites(SiteId from_site, Kind from, uintptr_t from_address, SiteId to_site, Kind to, uintptr_t to_address, uint64_t bytes) {
    count_bulk(from_site, from, from_address, bytes);
    count_bulk(to_site, to, to_address, bytes);
}

template <class Each> void each_peer(uint32_t peers, Each each) {
    if (peers == 0) {
        each(current->block->rank);
        return;
    }
    for (uint32_t rank = 0; rank < 16; ++rank) {
        if (peers >> rank & 1) each(rank);
    }
}

uintptr_t place_at(const void* shared, uint32_t rank, SiteId site) {
    return rank == current->block->rank ? reinterpret_cast<uintptr_t>(shared) : translate(shared, rank, site);
}

Groups& bulk_groups() {
    Fiber& f = *current;
    if (f.bulk.agent == nobody) {
        f.bulk.agent = new_agent(*f.block, "bulk", f.number);
        f.bulk.writer = new_agent(*f.block, "bulk", f.number);
    }
    return f.bulk;
}

}  // namespace
}  // namespace weft::sim

extern "C" {

void weft_bulk_load(void* shared, const void* global, uint32_t bytes, void* barrier, uint32_t peers) {
    const void* const here = __builtin_return_address(0);
    const SiteId site = site_of(here), store = site_of(second(here));
    if (bytes % 16) refuse_copy(site, "sizes are multiples of 16 bytes");
    const auto from = reinterpret_cast<uintptr_t>(global);
    each_peer(peers, [&](uint32_t rank) {
        const uintptr_t to = place_at(shared, rank, site), at = place_at(barrier, rank, site);
        Mbarrier& m = mbarrier(at, site, true);
        const Who who = by(m.agent, m.phase + 1, store, true);
        const Who reader = by(m.agent, m.phase + 1, site, true);
        if (!reach(from, bytes, false, 16, reader) || !reach(to, bytes, true, 16, who)) return;
        if (!at_once()) std::memset(reinterpret_cast<void*>(to), poison, bytes);
        deliver(to, bytes, at, store, [=] { std::memcpy(reinterpret_cast<void*>(to), global, bytes); });
        count_sites(site, Kind::async_read, from, store, Kind::async_write, to, bytes);
    });
    ++current->knowledge.clock;
}

void weft_bulk_store(void* global, const void* shared, uint32_t bytes) {
    const void* const here = __builtin_return_address(0);
    const SiteId site = site_of(here), store = site_of(second(here));
    Groups& g = bulk_groups();
    current->bulk_site = site;
    if (bytes % 16) refuse_copy(site, "sizes are multiples of 16 bytes");
    const auto from = reinterpret_cast<uintptr_t>(shared), to = reinterpret_cast<uintptr_t>(global);
    if (!reach(from, bytes, false, 16, by(g.agent, g.stamp + 1, site, true)) ||
        !reach(to, bytes, true, 16, by(g.writer, g.stamp + 1, store, true))) {
        return;
    }
    count_sites(site, Kind::async_read, from, store, Kind::async_write, to, bytes);
    ++current->knowledge.clock;
    auto work = std::make_shared<Work>();
    work->happen = [=] { std::memcpy(global, shared, bytes); };
    if (at_once()) work->run();
    g.open.push_back(std::move(work));
}

void weft_bulk_send(void* destination, const void* shared, uint32_t bytes, void* barrier, uint32_t rank) {
    const void* const here = __builtin_return_address(0);
    const SiteId site = site_of(here), store = site_of(second(here));
    if (bytes % 16) refuse_copy(site, "sizes are multiples of 16 bytes");
    const uintptr_t to = place_at(destination, rank, site), at = place_at(barrier, rank, site);
    const auto from = reinterpret_cast<uintptr_t>(shared);
    Mbarrier& m = mbarrier(at, site, true);
    if (!reach(from, bytes, false, 16, by(m.agent, m.phase + 1, site, true)) ||
        !reach(to, bytes, true, 16, by(m.agent, m.phase + 1, store, true))) {
        return;
    }
    count_sites(site, Kind::async_read, from, store, Kind::async_write, to, bytes);
    deliver(to, bytes, at, store, [=] { std::memcpy(reinterpret_cast<void*>(to), shared, bytes); });
    ++current->knowledge.clock;
}

void weft_bulk_commit() { commit(bulk_groups()); }

void weft_bulk_wait(uint32_t left, bool read_only) {
    Fiber& f = *current;
    Groups& g = bulk_groups();
    const uint32_t stamp = std::max(complete(g, left), g.waited);
    g.waited = stamp;
    learn(f.knowledge, g.agent, stamp);
    if (!read_only) learn(f.knowledge, g.writer, stamp);
}

// ---------------------------------------------------------------- clusters and registers

void* weft_peer(const void* shared, uint32_t rank) {
    return reinterpret_cast<void*>(translate(shared, rank, WEFT_HERE));
}

void weft_cluster_arrive() {
    Fiber& f = *current;
    Cluster& c = cluster_of(*f.block);
    c.gathering.take(f.knowledge);
    ++f.knowledge.clock;
    f.cluster_phase = c.phase;
    if (++c.arrived == launch->threads * launch->cluster_blocks) {
        c.arrived = 0;
        ++c.phase;
        ++launch->barriers;
        c.complete = c.gathering;
        c.gathering = Message{};
        auto waiting = std::move(c.waiting);
        c.waiting.clear();
        for (Fiber* other : waiting) wake(other);
        ++launch->progress;
    }
}

void weft_cluster_wait() {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    Cluster& c = cluster_of(*f.block);
    while (c.phase == f.cluster_phase) {
        c.waiting.push_back(&f);
        wait("the threads of its cluster", site);
    }
    acquire(f.knowledge, c.complete);
    ++f.cluster_waits;
}

void weft_registers(uint32_t registers, bool more) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    Block& b = *f.block;
    if (f.registers == 0) f.registers = launch->registers ? launch->registers : std::min(65536 / launch->threads / 8 * 8, 255u);
    const bool wrong = more ? registers < f.registers : registers > f.registers;
    if (wrong) {
        report("register budget", site, 0,
               ",\"actor\":" + thread_json(&f) + ",\"has\":" + std::to_string(f.registers) + ",\"asks\":" + std::to_string(registers));
    }
    while (more && b.registers_free < int64_t(registers) - int64_t(f.registers)) {
        b.wanting_registers.push_back(&f);
        wait("registers that other warps give up", site);
    }
    b.registers_free -= int64_t(registers) - int64_t(f.registers);
    f.registers = registers;
    auto waiting = std::move(b.wanting_registers);
    b.wanting_registers.clear();
    for (Fiber* other : waiting) wake(other);
}
}
