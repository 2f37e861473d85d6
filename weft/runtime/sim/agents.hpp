// Units that work beside the threads: what they know, what they access, when they do it.
#pragma once
#include "weft/schedule.hpp"

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

// ---------------------------------------------------------------- accesses of agents

Who by(Actor agent, uint32_t clock, SiteId site, bool async_proxy) {
    return {agent, clock, &current->knowledge, site, true, async_proxy, false};
}

// Checks memory, bounds and alignment of a range that a unit will access, then its cells. False if it must not be touched.
bool reach(Space space, uintptr_t address, uint32_t bytes, bool write, uint32_t alignment, const Who& who) {
    bool stray;
    Region* r = region_of(address, bytes, stray);
    const std::string tail = ",\"actor\":" + thread_json(current) + ",\"action\":\"" + (write ? "write" : "read") + "\"";
    if (!r || stray) {
        report("out of bounds", who.site, 0, place_json(r, address, bytes) + tail);
        if (!mapped(r, address) || !mapped(r, address + bytes)) abort_launch();
        return false;
    }
    in_space(space, r, address, bytes, who.site);
    const uintptr_t place = space == Space::shared ? address - r->base : address;
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

}  // namespace
}  // namespace weft::sim
