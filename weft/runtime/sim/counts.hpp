// What a warp's accesses cost: turns by the banks of shared memory, sectors of global memory.
//
// The accesses of the lanes at one site between two synchronisations of their warp are paired in order: the k-th of each
// lane are one request, as they are where lanes run in lockstep.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "weft/shadow.hpp"

namespace weft::sim {

struct SiteCounts {
    uint64_t requests = 0, bytes = 0;
    uint64_t turns = 0, ideal_turns = 0, degree = 0;
    uint64_t sectors = 0, ideal_sectors = 0;
};

// The words that some lanes want, and how many of them the bank that serves the most.
struct Words {
    uint32_t distinct = 0, turns = 0;
};
inline Words words_of(const uintptr_t* addresses, uint32_t lanes, uint32_t width) {
    std::array<uint8_t, 32> banks{};
    std::array<uintptr_t, 128> seen;
    Words words;
    for (; lanes; lanes &= lanes - 1) {
        const uintptr_t address = addresses[__builtin_ctz(lanes)], last = (address + width - 1) / 4;
        for (uintptr_t word = address / 4; word <= last; ++word) {
            bool known = false;
            for (uint32_t k = words.distinct; k > 0 && !known; --k) known = seen[k - 1] == word;
            if (known) continue;
            seen[words.distinct++] = word;
            words.turns = std::max<uint32_t>(words.turns, ++banks[word % 32]);
        }
    }
    return words;
}

// Whether each lane of some wants what the lane `bit` away does, as far as that takes part.
inline bool alike(const uintptr_t* addresses, uint32_t lanes, uint32_t bit) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        const auto lane = uint32_t(__builtin_ctz(left)), other = lane ^ bit;
        if ((lanes >> other & 1) && addresses[lane] != addresses[other]) return false;
    }
    return true;
}

// The phases of an access, as weft.layout.banks has them.
inline void count_shared(SiteCounts& counts, const uintptr_t* addresses, uint32_t lanes, uint32_t width) {
    const uint32_t phase = width <= 4 ? 32 : 128 / width;
    const auto part = [&](uint32_t first, uint32_t count) { return lanes & uint32_t(((1ull << count) - 1) << first); };
    const auto serve = [&](uint32_t some) {
        if (!some) return;
        const Words words = words_of(addresses, some, width);
        counts.turns += words.turns;
        counts.ideal_turns += 1;
        counts.degree = std::max<uint64_t>(counts.degree, words.turns);
    };
    if (phase == 32) return serve(lanes);
    for (uint32_t first = 0; first < 32; first += 2 * phase) {
        const uint32_t both = part(first, 2 * phase);
        if (alike(addresses, both, 1) || alike(addresses, both, 2)) {
            serve(both);
        } else {
            serve(part(first, phase));
            serve(part(first + phase, phase));
        }
    }
}

inline void count_global(SiteCounts& counts, const uintptr_t* addresses, uint32_t lanes, uint32_t width) {
    std::array<uintptr_t, 32 * 9> sectors;
    std::array<uintptr_t, 32> starts;
    uint32_t touched = 0, distinct = 0;
    for (uint32_t l = 0; l < 32; ++l) {
        if (!(lanes >> l & 1)) continue;
        starts[distinct++] = addresses[l];
        for (uintptr_t s = addresses[l] / 32; s <= (addresses[l] + width - 1) / 32; ++s) {
            // neighbours mostly share sectors: look back from the last one
            bool known = false;
            for (uint32_t k = touched; k > 0 && !known; --k) known = sectors[k - 1] == s;
            if (!known && touched < sectors.size()) sectors[touched++] = s;
        }
    }
    std::sort(starts.begin(), starts.begin() + distinct);
    const auto bytes = uint64_t(std::unique(starts.begin(), starts.begin() + distinct) - starts.begin()) * width;
    counts.sectors += touched;
    counts.ideal_sectors += (bytes + 31) / 32;
}

struct Request {
    uint32_t lanes = 0, width = 0;
    Space space = Space::global;
    std::array<uintptr_t, 32> addresses;
};

// The open requests of one warp.
class WarpCounts {
public:
    // True where the lane is far ahead of the others, and should let them catch up.
    bool add(SiteId site, uint32_t lane, uintptr_t address, uint32_t width, Space space, std::vector<SiteCounts>& sites,
             uint32_t live) {
        if (site >= index_.size()) index_.resize(site + 64, -1);
        if (index_[site] < 0) {
            index_[site] = int32_t(open_.size());
            open_.emplace_back();
            open_.back().site = site;
        }
        Open& open = open_[index_[site]];
        const uint64_t k = open.next[lane]++;
        Request late;  // of a request that was counted without this lane
        const bool first = open.first + open.requests.size() <= k;
        while (open.first + open.requests.size() <= k) open.requests.emplace_back();
        Request& r = k < open.first ? late : open.requests[k - open.first];
        r.lanes |= 1u << lane;
        r.width = width;
        r.space = space;
        r.addresses[lane] = address;
        if (k < open.first) close(site, late, sites);
        // Whole requests are counted at once, so that long loops keep few of them.
        while (!open.requests.empty() && open.requests.front().lanes == live) {
            close(open.site, open.requests.front(), sites);
            open.requests.pop_front();
            ++open.first;
        }
        if (open.requests.size() > 4 * far_ahead) {
            close(open.site, open.requests.front(), sites);
            open.requests.pop_front();
            ++open.first;
        }
        return first && open.requests.size() % far_ahead == 0 && !open.requests.empty();
    }
    // The lanes of the warp are together again.
    void close(std::vector<SiteCounts>& sites) {
        for (Open& open : open_) {
            for (const Request& r : open.requests) close(open.site, r, sites);
            open.requests.clear();
            open.first = 0;
            open.next.fill(0);
        }
    }

private:
    static constexpr size_t far_ahead = 256;
    struct Open {
        SiteId site = 0;
        uint64_t first = 0;
        std::array<uint64_t, 32> next{};
        std::deque<Request> requests;
    };
    static void close(SiteId site, const Request& r, std::vector<SiteCounts>& sites) {
        if (!r.lanes) return;
        SiteCounts& counts = sites[site];
        counts.requests += 1;
        counts.bytes += uint64_t(__builtin_popcount(r.lanes)) * r.width;
        (r.space == Space::shared ? count_shared : count_global)(counts, r.addresses.data(), r.lanes, r.width);
    }
    std::vector<int32_t> index_;
    std::vector<Open> open_;
};

}  // namespace weft::sim
