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

struct Cell {
    Actor writer = nobody;
    uint32_t written = never;
    SiteId write_site = 0;
    Actor reader = nobody;
    uint32_t read = 0;  // with `many` readers, the number of their set
    SiteId read_site = 0;
};

struct Reader {
    Actor actor;
    uint32_t clock;
    SiteId site;
};

// Sets of readers, sorted by actor; used again when a write clears them.
class ReaderSets {
public:
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
        sets_[k].clear();
        free_.push_back(k);
    }
    std::vector<Reader>& operator[](uint32_t k) { return sets_[k]; }
    void insert(uint32_t k, Reader r) {
        auto& set = sets_[k];
        if (set.empty() || set.back().actor < r.actor) {
            set.push_back(r);
            return;
        }
        auto place = std::lower_bound(set.begin(), set.end(), r.actor, [](const Reader& a, Actor b) { return a.actor < b; });
        if (place != set.end() && place->actor == r.actor) *place = r;
        else set.insert(place, r);
    }

private:
    std::vector<std::vector<Reader>> sets_;
    std::vector<uint32_t> free_;
};

enum class Space : uint32_t { global, shared };

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
