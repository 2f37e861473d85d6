// Shadow memory: for every cell of a region who wrote it last and who has read it since, with the clocks of both.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "weft/clock.hpp"

namespace weft::sim {

using SiteId = uint32_t;

constexpr uint32_t never = 0, by_host = 1, hole = 2;  // write clocks of cells that no actor wrote
constexpr Actor nobody = 0xffffffffu, many = 0xfffffffeu;

// The last ordinary write, and who has accessed the cell since: its readers, and atomics that write. Ordinary writes follow
// each other in order or there is a race, so the last one stands for all; atomics may come in any order, so each is kept.
struct Cell {
    Actor writer = nobody;
    uint32_t written = never;
    SiteId write_site = 0;
    Actor reader = nobody;
    uint32_t read = 0;  // with `many` accesses, the number of their set
    SiteId read_site = 0;
};

struct Access {
    Actor actor;
    uint32_t clock;
    SiteId site;
    bool atomic, write;  // only an atomic's write is kept so
    uint64_t key() const { return uint64_t(actor) << 2 | uint64_t(atomic) << 1 | uint64_t(write); }
};

// Sets of accesses, sorted; used again when a write clears them.
class AccessSets {
public:
    struct Set {
        std::vector<Access> accesses;
        bool writes = false;
        void insert(Access a) {
            writes = writes || a.write;
            if (accesses.empty() || accesses.back().key() < a.key()) {
                accesses.push_back(a);
                return;
            }
            auto place = std::lower_bound(accesses.begin(), accesses.end(), a.key(),
                                          [](const Access& other, uint64_t key) { return other.key() < key; });
            if (place != accesses.end() && place->key() == a.key()) *place = a;
            else accesses.insert(place, a);
        }
    };
    uint32_t make() {
        if (free_.empty()) {
            sets_.emplace_back();
            return uint32_t(sets_.size() - 1);
        }
        const uint32_t k = free_.back();
        free_.pop_back();
        return k;
    }
    void release(uint32_t k) {
        sets_[k].accesses.clear();
        sets_[k].writes = false;
        free_.push_back(k);
    }
    Set& operator[](uint32_t k) { return sets_[k]; }

private:
    std::vector<Set> sets_;
    std::vector<uint32_t> free_;
};

// A range of memory that kernels may touch. `untracked`: all of it was written before and nobody may write it, so only
// bounds are checked.
struct Region {
    uintptr_t base = 0;
    uint64_t bytes = 0;
    uint32_t granule = 1;  // bytes a cell
    Space space = Space::global;
    bool read_only = false, untracked = false;
    uint32_t number = 0;  // argument, or block for shared memory
    std::vector<Cell> cells;

    void track(uint32_t initial) {
        cells.assign((bytes + granule - 1) / granule, Cell{});
        if (initial != never) {
            for (Cell& c : cells) c.written = initial;
        }
    }
};

}  // namespace weft::sim
