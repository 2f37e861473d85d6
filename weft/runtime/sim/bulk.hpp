// Bulk copies of runs of bytes, and the fence between ordinary accesses and theirs.
#pragma once
#include "weft/mbarriers.hpp"

extern "C" {

void weft_fence_proxy(bool of_shared) {
    fence_proxy(current->knowledge, of_shared ? Space::shared : Space::global);
    if (of_shared) fence_mbarriers();
}
}

namespace weft::sim {
namespace {

void refuse_copy(SiteId site, const char* why) {
    report("bad copy", site, 0, ",\"actor\":" + thread_json(current) + ",\"rule\":" + quoted(why));
    abort_launch();
}

// One destination of a load: its block's place and mbarrier. `move` puts the bytes there.
void deliver(uint64_t bytes, uintptr_t barrier, SiteId site, std::function<void()> move) {
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
        if (!reach(Space::global, from, bytes, false, 16, reader) || !reach(Space::shared, to, bytes, true, 16, who)) return;
        if (!at_once()) std::memset(reinterpret_cast<void*>(to), poison, bytes);
        deliver(bytes, at, store, [=] { std::memcpy(reinterpret_cast<void*>(to), global, bytes); });
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
    if (!reach(Space::shared, from, bytes, false, 16, by(g.agent, g.stamp + 1, site, true)) ||
        !reach(Space::global, to, bytes, true, 16, by(g.writer, g.stamp + 1, store, true))) {
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
    if (!reach(Space::shared, from, bytes, false, 16, by(m.agent, m.phase + 1, site, true)) ||
        !reach(Space::shared, to, bytes, true, 16, by(m.agent, m.phase + 1, store, true))) {
        return;
    }
    count_sites(site, Kind::async_read, from, store, Kind::async_write, to, bytes);
    deliver(bytes, at, store, [=] { std::memcpy(reinterpret_cast<void*>(to), shared, bytes); });
    ++current->knowledge.clock;
}

void weft_send(void* destination, const void* value, uint32_t bytes, void* barrier, uint32_t rank, bool after) {
    const SiteId site = WEFT_HERE;
    const uintptr_t to = place_at(destination, rank, site), at = place_at(barrier, rank, site);
    Mbarrier& m = mbarrier(at, site, true);
    if (m.block->finished) {
        report("peer exited", site, 0,
               place_json(&m.block->shared, to, bytes) + ",\"actor\":" + thread_json(current) + ",\"peer\":" + std::to_string(rank));
    }
    if (!reach(Space::shared, to, bytes, true, 4, by(m.agent, m.phase + 1, site, false))) return;
    std::vector<char> sent(static_cast<const char*>(value), static_cast<const char*>(value) + bytes);
    if (after) m.gathering.take(message_of(current->knowledge));
    deliver(bytes, at, site, [=] { std::memcpy(reinterpret_cast<void*>(to), sent.data(), bytes); });
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
}
