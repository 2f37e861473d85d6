// Copies from global to shared memory that a thread starts and waits for (cp.async).
#pragma once
#include "weft/mbarriers.hpp"

extern "C" {

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
        fine = reach(Space::global, from, read, false, bytes, by(g.agent, g.stamp + 1, site, false));
        if (Region* r = region_of(from, read, stray); fine && r) count(site, Kind::async_read, *r, from, read);
    }
    if (!reach(Space::shared, to, bytes, true, bytes, by(g.agent, g.stamp + 1, store, false)) || !fine) return;
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
}
