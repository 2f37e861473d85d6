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

// The bytes a lane moves at a time decide how many lanes take a turn together.
inline void count_shared(SiteCounts& counts, const uintptr_t* addresses, uint32_t lanes, uint32_t width) {
    const uint32_t group = width <= 4 ? 32 : width == 8 ? 16 : 8;
    uint64_t turns = 0, ideal = 0, degree = 1;
    for (uint32_t first = 0; first < 32; first += group) {
        std::array<uint8_t, 32> words{};
        std::array<uintptr_t, 128> seen;
        uint32_t distinct = 0, most = 0;
        for (uint32_t l = first; l < first + group; ++l) {
            if (!(lanes >> l & 1)) continue;
            const uintptr_t last = (addresses[l] + width - 1) / 4;
            for (uintptr_t word = addresses[l] / 4; word <= last; ++word) {
                bool known = false;
                for (uint32_t k = 0; k < distinct && !known; ++k) known = seen[k] == word;
                if (known) continue;
                seen[distinct++] = word;
                most = std::max<uint32_t>(most, ++words[word % 32]);
            }
        }
        turns += most;
        ideal += (distinct + 31) / 32;
        degree = std::max<uint64_t>(degree, most);
    }
    counts.turns += turns;
    counts.ideal_turns += ideal;
    counts.degree = std::max(counts.degree, degree);
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
    void add(SiteId site, uint32_t lane, uintptr_t address, uint32_t width, Space space, std::vector<SiteCounts>& sites,
             uint32_t live) {
        if (site >= index_.size()) index_.resize(site + 64, -1);
        if (index_[site] < 0) {
            index_[site] = int32_t(open_.size());
            open_.emplace_back();
            open_.back().site = site;
        }
        Open& open = open_[index_[site]];
        const uint64_t k = open.next[lane]++;
        while (open.first + open.requests.size() <= k) open.requests.emplace_back();
        Request& r = open.requests[k - open.first];
        r.lanes |= 1u << lane;
        r.width = width;
        r.space = space;
        r.addresses[lane] = address;
        // Whole requests are counted at once, so that long loops keep few of them.
        while (!open.requests.empty() && open.requests.front().lanes == live) {
            close(open.site, open.requests.front(), sites);
            open.requests.pop_front();
            ++open.first;
        }
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
