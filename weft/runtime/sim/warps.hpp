// Barriers of blocks and what the lanes of a warp do together.
#pragma once
#include "weft/launch.hpp"

namespace weft::sim {
namespace {

void arrive(Barrier& barrier, Fiber& f, uint32_t id, uint32_t threads, bool waits, SiteId site) {
    Block& b = *f.block;
    const uint32_t expected = threads ? threads : launch->threads;
    if (threads % 32 || threads > launch->threads || id > 15) {
        report("barrier count", site, 0,
               ",\"actor\":" + thread_json(&f) + ",\"threads\":" + std::to_string(threads) + ",\"id\":" + std::to_string(id));
        abort_launch();
    }
    if (barrier.arrived && barrier.expected != expected) {
        report("barrier count", site, barrier.site,
               ",\"actor\":" + thread_json(&f) + ",\"threads\":" + std::to_string(threads) + ",\"id\":" + std::to_string(id) +
                   ",\"expected\":" + std::to_string(barrier.expected));
        abort_launch();
    }
    if (barrier.arrived == 0) barrier.site = site;
    // in a branch that only some threads take, a barrier of the whole block is two barriers
    if (!threads && barrier.site != site) {
        report("divergent barrier", site, barrier.site,
               ",\"actor\":" + thread_json(&f) + ",\"by\":" +
                   (barrier.waiting.empty() ? std::string("null") : thread_json(barrier.waiting[0])) + ",\"sites\":true");
    }
    barrier.expected = expected;
    barrier.message.take(f.knowledge);
    ++barrier.arrived;
    if (waits) barrier.waiting.push_back(&f);
    else ++f.knowledge.clock;
    if (barrier.arrived == expected) release_barrier(b, barrier);
}

enum class Op : uint32_t { shuffle = 1, vote, sync, collective };

// Waits until all lanes of the mask are at the same operation; `given` of each can then be read.
void meet(uint32_t mask, Op op, uint64_t value, SiteId site, void (*act)(void* const*) = nullptr) {
    Fiber& f = *current;
    Block& b = *f.block;
    const uint32_t first = f.warp * 32;
    if (!(mask >> f.lane & 1)) {
        report("shuffle mask", site, 0,
               ",\"actor\":" + thread_json(&f) + ",\"mask\":" + std::to_string(mask) + ",\"lane\":" + std::to_string(f.lane));
        mask |= 1u << f.lane;
    }
    const uint32_t size = std::min(32u, launch->threads - first);
    if (const uint32_t absent = mask & ~b.warps[f.warp].live) {
        const uint32_t lane = uint32_t(__builtin_ctz(absent));
        report("shuffle mask", site, 0,
               ",\"actor\":" + thread_json(&f) + ",\"mask\":" + std::to_string(mask) + ",\"absent\":" + std::to_string(lane) +
                   ",\"exists\":" + (lane < size ? "true" : "false"));
        mask &= b.warps[f.warp].live;
    }
    f.turn ^= 1;
    f.given[f.turn] = value;
    f.gave_mask = mask;
    f.gave_op = uint32_t(op);
    f.in_collective = true;
    f.wait_site = site;
    uint32_t here = 0;
    for (uint32_t l = 0; l < size; ++l) {
        const Fiber& other = b.fibers[first + l];
        if (!(mask >> l & 1) || !other.in_collective) continue;
        if (other.gave_mask != mask) {
            report("shuffle mask", site, other.wait_site,
                   ",\"actor\":" + thread_json(&f) + ",\"by\":" + thread_json(&other) + ",\"mask\":" + std::to_string(mask) +
                       ",\"other_mask\":" + std::to_string(other.gave_mask));
            abort_launch();
        }
        if (other.gave_op != uint32_t(op) || other.wait_site != site) {
            report("divergent warp", site, other.wait_site,
                   ",\"actor\":" + thread_json(&f) + ",\"by\":" + thread_json(&other) + ",\"kinds\":" +
                       (other.gave_op != uint32_t(op) ? "true" : "false"));
            if (other.gave_op != uint32_t(op)) abort_launch();
        }
        here |= 1u << l;
    }
    if (here != mask) {
        wait("the lanes of its warp", site);
        return;
    }
    if (act) {
        void* records[32];
        for (uint32_t l = 0; l < 32; ++l) {
            records[l] = mask >> l & 1 ? reinterpret_cast<void*>(b.fibers[first + l].given[f.turn]) : nullptr;
        }
        Fiber* const self = current;
        current = nullptr;  // what it touches are registers, not accesses
        act(records);
        current = self;
    }
    const bool progress = op != Op::vote;  // a loop that votes whether to wait on does not go on by that
    Message message;
    if (op == Op::sync) {
        for (uint32_t l = 0; l < size; ++l) {
            if (mask >> l & 1) message.take(b.fibers[first + l].knowledge);
        }
    }
    for (uint32_t l = 0; l < size; ++l) {
        if (!(mask >> l & 1)) continue;
        Fiber& other = b.fibers[first + l];
        other.in_collective = false;
        if (op == Op::sync) {
            adopt(other.knowledge, message);
            ++other.knowledge.clock;
        }
        if (&other != &f) wake(&other, progress);
    }
    if (mask == b.warps[f.warp].live) b.warps[f.warp].counts.close(launch->counts);
    if (progress) ++launch->progress;
}

uint64_t value_of(uint32_t lane) {
    // the lane may already have given the value of its next operation: that lies at its other turn
    const Fiber& f = *current;
    return f.block->fibers[f.warp * 32 + lane].given[f.turn];
}

}  // namespace
}  // namespace weft::sim

using namespace weft::sim;

extern "C" {

const Self& weft_self() { return *current->self; }

void weft_trap() {
    report("trap", WEFT_HERE, 0, ",\"actor\":" + thread_json(current));
    abort_launch();
}

void weft_yield() { spin(WEFT_HERE, "memory to change"); }

uint64_t weft_clock() { return current->steps; }

void weft_barrier(uint32_t id, uint32_t threads, bool waits) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    Barrier& barrier = f.block->barriers[id & 15];
    // the last to arrive does not wait, but takes its turn with the others
    f.state = State::waiting;
    f.waits_for = "the threads of its barrier";
    f.wait_site = site;
    arrive(barrier, f, id, threads, waits, site);
    if (waits) to_scheduler();
    else f.state = State::ready;
}

uint32_t weft_barrier_count(uint32_t predicate) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    uint32_t* const sums = f.block->sums;  // of this barrier, of the last one, where some have yet to read, and of the next
    uint32_t& round = f.block->round;
    const uint32_t turn = round % 3;
    sums[turn] += predicate != 0;
    f.state = State::waiting;
    f.waits_for = "the threads of its barrier";
    f.wait_site = site;
    Barrier& barrier = f.block->barriers[0];
    const bool last = barrier.arrived + 1 == launch->threads;
    if (last) {
        ++round;
        sums[round % 3] = 0;
    }
    arrive(barrier, f, 0, 0, true, site);
    to_scheduler();
    return sums[turn];
}

uint64_t weft_shuffle(uint32_t mask, uint64_t value, int32_t source) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    if (value == 0xfefefefeu || value == 0xfefefefefefefefeull) {
        report("uninitialised registers", site, 0, ",\"actor\":" + thread_json(&f) + ",\"what\":\"the value of a shuffle\"");
    }
    meet(mask, Op::shuffle, value, site);
    if (source < 0 || source > 31) return value;
    if (!(f.gave_mask >> source & 1)) {
        report("shuffle mask", site, 0,
               ",\"actor\":" + thread_json(&f) + ",\"mask\":" + std::to_string(mask) + ",\"source\":" + std::to_string(source));
        return 0xfefefefefefefefeull;
    }
    return value_of(uint32_t(source));
}

uint32_t weft_vote(uint32_t mask, Vote vote, uint64_t value) {
    const SiteId site = WEFT_HERE;
    meet(mask, Op::vote, value, site);
    uint32_t lanes = 0;
    for (uint32_t l = 0; l < 32; ++l) {
        if (current->gave_mask >> l & 1) lanes |= uint32_t(vote == Vote::match ? value_of(l) == value : value_of(l) != 0) << l;
    }
    if (vote == Vote::any) return lanes != 0;
    if (vote == Vote::all) return lanes == current->gave_mask;
    return lanes;
}

void weft_sync_warp(uint32_t mask) { meet(mask, Op::sync, 0, WEFT_HERE); }

void weft_together(void* record, void (*act)(void* const*)) {
    meet(0xffffffffu, Op::collective, reinterpret_cast<uint64_t>(record), WEFT_HERE, act);
}

uint32_t weft_active_mask() { return current->block->warps[current->warp].live; }
}
