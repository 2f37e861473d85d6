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

// Accesses of some of 32 actors that follow each other, as the threads of a warp do, at one site and one clock of theirs.
struct Access {
    Actor first;
    uint32_t actors;  // a bit for each
    uint32_t clock;
    SiteId site;
    bool atomic, write;  // only an atomic's write is kept so

    Access(Actor actor, uint32_t clock, SiteId site, bool atomic, bool write)
        : first(actor & ~31u), actors(1u << (actor & 31)), clock(clock), site(site), atomic(atomic), write(write) {}
    uint64_t key() const { return uint64_t(first) << 2 | uint64_t(atomic) << 1 | uint64_t(write); }
    template <typename Body>
    void each(const Body& body) const {
        for (uint32_t left = actors; left != 0; left &= left - 1) body(first + uint32_t(__builtin_ctz(left)));
    }
    bool joins(const Access& other) const { return key() == other.key() && clock == other.clock && site == other.site; }
};

// Sets of accesses, sorted, the last of each actor; used again when a write clears them.
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
            const size_t n = accesses.size();
            if (accesses.back().joins(a) && (n == 1 || accesses[n - 2].key() != a.key())) {
                accesses.back().actors |= a.actors;
                return;
            }
            replace(a);
        }

    private:
        void replace(const Access& a) {
            auto place = std::lower_bound(accesses.begin(), accesses.end(), a.key(),
                                          [](const Access& other, uint64_t key) { return other.key() < key; });
            bool joined = false;
            while (place != accesses.end() && place->key() == a.key()) {
                if (place->joins(a)) {
                    place->actors |= a.actors;
                    joined = true;
                } else {
                    place->actors &= ~a.actors;
                }
                place = place->actors == 0 ? accesses.erase(place) : place + 1;
            }
            if (!joined) accesses.insert(place, a);
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

    uint64_t cell_count() const { return (bytes + granule - 1) / granule; }
    void track(uint32_t initial) {
        cells.assign(cell_count(), Cell{});
        if (initial != never) {
            for (Cell& c : cells) c.written = initial;
        }
    }
};

}  // namespace weft::sim
