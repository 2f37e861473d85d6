// Bulk copies of boxes of tensors.
#pragma once
#include "weft/bulk.hpp"

namespace weft::sim {
namespace {

// ---------------------------------------------------------------- tensor maps

// As weft.runtime.tensor_map writes it for the simulator: the contiguous dimension first.
struct __attribute__((packed)) HostMap {
    uint64_t address;
    uint32_t rank, element_bytes;
    uint64_t shape[5], strides[4];
    uint16_t box[5];
    uint8_t steps[5], swizzle, nan;
};

// Where 16 bytes at an offset of shared memory lie under a swizzle: the chunk in its line XOR the line.
uint32_t swizzled(uint32_t offset, uint32_t swizzle) { return swizzle ? offset ^ ((offset >> 7 & (swizzle / 16 - 1)) << 4) : offset; }

struct Line {
    uint32_t packed;         // offset of the line in the box
    uint32_t bytes;          // of the whole line
    uint32_t first, inside;  // the part of it that lies in the tensor, in bytes
    uintptr_t global;        // of that part
};

std::vector<Line> lines_of(const HostMap& m, const int32_t* c) {
    uint32_t moved[5] = {1, 1, 1, 1, 1};
    for (uint32_t d = 0; d < m.rank; ++d) moved[d] = (m.box[d] + m.steps[d] - 1u) / m.steps[d];
    std::vector<Line> lines;
    const uint32_t bytes = moved[0] * m.element_bytes;
    uint32_t k[5] = {0, 0, 0, 0, 0};
    for (uint32_t n = 0;; ++n) {
        bool in = true;
        uint64_t offset = 0;
        for (uint32_t d = 1; d < m.rank; ++d) {
            const int64_t at = int64_t(c[d]) + int64_t(k[d]) * m.steps[d];
            in = in && at >= 0 && uint64_t(at) < m.shape[d];
            offset += uint64_t(at) * m.strides[d - 1];
        }
        const int64_t low = std::max<int64_t>(0, -int64_t(c[0]));
        const int64_t high = std::min<int64_t>(moved[0], int64_t(m.shape[0]) - c[0]);
        Line line{n * bytes, bytes, 0, 0, 0};
        if (in && low < high) {
            line.first = uint32_t(low) * m.element_bytes;
            line.inside = uint32_t(high - low) * m.element_bytes;
            line.global = uintptr_t(m.address + offset + uint64_t(c[0] + low) * m.element_bytes);
        }
        lines.push_back(line);
        uint32_t d = 1;
        while (d < m.rank && ++k[d] == moved[d]) k[d++] = 0;
        if (d >= m.rank) break;
    }
    return lines;
}

HostMap read_map(const void* map, const int32_t* coordinates, uint32_t rank, SiteId site) {
    HostMap m;
    std::memcpy(&m, map, sizeof m);
    if (int64_t(coordinates[0]) * m.element_bytes % 16) refuse_copy(site, "a box starts at a multiple of 16 bytes of its line");
    if (m.rank != rank) refuse_copy(site, "a copy has as many coordinates as its tensor map");
    return m;
}

}  // namespace
}  // namespace weft::sim

extern "C" {

void weft_tensor_load(void* shared, const void* map, void* barrier, const int32_t* coordinates, uint32_t rank, uint32_t peers) {
    const void* const here = __builtin_return_address(0);
    const SiteId site = site_of(here), store = site_of(second(here));
    const HostMap m = read_map(map, coordinates, rank, site);
    const std::vector<Line> lines = lines_of(m, coordinates);
    const uint32_t bytes = lines.back().packed + lines.back().bytes;
    each_peer(peers, [&](uint32_t peer) {
        const uintptr_t to = place_at(shared, peer, site), at = place_at(barrier, peer, site);
        Mbarrier& bar = mbarrier(at, site, true);
        const Who reader = by(bar.agent, bar.phase + 1, site, true), writer = by(bar.agent, bar.phase + 1, store, true);
        for (const Line& line : lines) {
            if (line.inside && !reach(Space::global, line.global, line.inside, false, m.element_bytes, reader)) return;
        }
        Block& block = owner(to);
        const uintptr_t base = block.shared.base;
        if (!reach(Space::shared, to, bytes, true, 128, writer)) return;
        if (block.swizzles.empty()) block.swizzles.resize(block.shared.bytes / 16 + 1, 0);
        std::fill_n(block.swizzles.begin() + int64_t((to - base) / 16), bytes / 16, uint8_t(1 + m.swizzle / 32));
        if (!at_once()) std::memset(reinterpret_cast<void*>(to), poison, bytes);
        deliver(bytes, at, store, [=] {
            std::vector<char> packed(bytes, 0);
            if (m.nan) {
                for (uint32_t k = 0; k < bytes; ++k) packed[k] = char(k % m.element_bytes == m.element_bytes - 1u ? 0x7f : 0xff);
            }
            for (const Line& line : lines) {
                if (line.inside) {
                    std::memcpy(packed.data() + line.packed + line.first, reinterpret_cast<const void*>(line.global), line.inside);
                }
            }
            for (uint32_t k = 0; k < bytes; k += 16) {
                std::memcpy(reinterpret_cast<char*>(base) + swizzled(uint32_t(to - base) + k, m.swizzle), packed.data() + k, 16);
            }
        });
        for (const Line& line : lines) {
            if (line.inside) count_bulk(site, Kind::async_read, line.global, line.inside);
        }
        count_bulk(store, Kind::async_write, to, bytes);
    });
    ++current->knowledge.clock;
}

void weft_tensor_store(const void* map, const void* shared, const int32_t* coordinates, uint32_t rank) {
    const void* const here = __builtin_return_address(0);
    const SiteId site = site_of(here), store = site_of(second(here));
    const HostMap m = read_map(map, coordinates, rank, site);
    const std::vector<Line> lines = lines_of(m, coordinates);
    const uint32_t bytes = lines.back().packed + lines.back().bytes;
    Groups& g = bulk_groups();
    current->bulk_site = site;
    const auto from = reinterpret_cast<uintptr_t>(shared);
    if (!reach(Space::shared, from, bytes, false, 128, by(g.agent, g.stamp + 1, site, true))) return;
    for (const Line& line : lines) {
        if (line.inside && !reach(Space::global, line.global, line.inside, true, m.element_bytes, by(g.writer, g.stamp + 1, store, true))) return;
    }
    ++current->knowledge.clock;
    const uintptr_t base = current->block->shared.base;
    auto work = std::make_shared<Work>();
    work->happen = [=] {
        std::vector<char> packed(bytes);
        for (uint32_t k = 0; k < bytes; k += 16) {
            std::memcpy(packed.data() + k, reinterpret_cast<const char*>(base) + swizzled(uint32_t(from - base) + k, m.swizzle), 16);
        }
        for (const Line& line : lines) {
            if (line.inside) std::memcpy(reinterpret_cast<void*>(line.global), packed.data() + line.packed + line.first, line.inside);
        }
    };
    if (at_once()) work->run();
    g.open.push_back(std::move(work));
    for (const Line& line : lines) {
        if (line.inside) count_bulk(store, Kind::async_write, line.global, line.inside);
    }
    count_bulk(site, Kind::async_read, from, bytes);
}
}
