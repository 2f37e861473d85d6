// Barriers in shared memory that count arrivals and bytes.
#pragma once
#include "weft/agents.hpp"

namespace weft::sim {
namespace {

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

void fence_mbarriers() {
    for (auto& [address, m] : current->block->mbarriers) m.fenced = m.fenced || m.maker == current->knowledge.self;
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

}  // namespace
}  // namespace weft::sim

extern "C" {

void weft_mbarrier_init(void* barrier, uint32_t count) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    const auto address = reinterpret_cast<uintptr_t>(barrier);
    if (!reach(Space::shared, address, 8, true, 8, self(site))) return;
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
    fence_mbarriers();
    current->at_making = message_of(current->knowledge);
    ++current->knowledge.clock;
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
}
