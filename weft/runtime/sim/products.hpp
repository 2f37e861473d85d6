// The matrix products of warpgroups (wgmma), each warp's rows of them by themselves.
#pragma once
#include "weft/agents.hpp"
#include "weft/scalar.cuh"

namespace weft::sim {
namespace {

struct Matrix {
    weft_matrix at{};
    uint32_t element = 2, depth = 16;  // bytes, elements along k
    uint32_t offset(uint32_t row, uint32_t k) const {
        const uint32_t s = at.swizzle;
        uint32_t o;
        if (s == 0) {
            const uint32_t per = 16 / element;
            o = at.rows_contiguous ? k / 8 * at.leading + row / 8 * at.stride + k % 8 * 16 + row % 8 * 2
                                   : k / per * at.leading + row / 8 * at.stride + row % 8 * 16 + k % per * element;
        } else if (at.rows_contiguous) {
            o = row / (s / 2) * at.leading + k / 8 * at.stride + k % 8 * s + row % (s / 2) * 2;
        } else {
            o = row / 8 * at.stride + row % 8 * s + k * element;
        }
        o += at.start;
        return swizzled(o & ~15u, s) | (o & 15u);
    }
};

uint32_t bytes_of(weft_element type) { return type == weft_tfloat32 ? 4 : type == weft_int8 || type == weft_uint8 ? 1 : 2; }

float element_at(const char* shared, uint32_t offset, weft_element type) {
    uint16_t half;
    uint32_t word;
    if (type == weft_int8) return float(int8_t(shared[offset]));
    if (type == weft_uint8) return float(uint8_t(shared[offset]));
    if (type == weft_tfloat32) {
        std::memcpy(&word, shared + offset, 4);
        return weft::float_of(word & 0xffffe000u);
    }
    std::memcpy(&half, shared + offset, 2);
    return type == weft_float16 ? weft::float_of_float16(half) : weft::float_of(uint32_t(half) << 16);
}

float element_of(uint32_t word, uint32_t half, weft_element type) {
    if (type == weft_tfloat32) return weft::float_of(word & 0xffffe000u);
    const auto bits = uint16_t(word >> 16 * half);
    return type == weft_float16 ? weft::float_of_float16(bits) : weft::float_of(uint32_t(bits) << 16);
}

// What all of some threads know.
Knowledge meet_of(const std::vector<Multiplier::Given>& threads) {
    Knowledge all;
    all.self = nobody;
    all.clock = 0;
    constexpr auto shared = uint32_t(Space::shared);
    const auto least = [&](bool proxy) {
        auto v = std::make_shared<Vector>();
        bool begun = false;
        for (const auto& thread : threads) {
            const Knowledge& k = thread.fiber->knowledge;
            Vector own;
            own.block = block_of(k.self);
            const Shared& part = proxy ? k.proxy[shared] : k.seen;
            if (part) own = *part;
            own.raise(k.self, proxy ? k.fenced[shared] : k.clock);
            if (!begun) *v = own;
            else v->limit(own);
            begun = true;
        }
        return v;
    };
    all.seen = least(false);
    all.proxy[shared] = least(true);
    return all;
}

void read_matrix(Region& r, const Matrix& m, uint32_t first, uint32_t rows, const Who& who, Block& b) {
    const uint32_t per = 16 / m.element;
    const uint32_t along = m.at.rows_contiguous ? rows / 8 : rows, across = m.at.rows_contiguous ? m.depth : m.depth / per;
    bool told = false;
    for (uint32_t i = 0; i < along; ++i) {
        for (uint32_t j = 0; j < across; ++j) {
            const uint32_t offset = m.at.rows_contiguous ? m.offset(first + i * 8, j) : m.offset(first + i, j * per);
            if (offset + 16 > r.bytes) {
                if (!told) {
                    report("out of bounds", who.site, 0, place_json(&r, r.base + offset, 16) + ",\"actor\":" + thread_json(current) +
                                                           ",\"action\":\"read\"");
                }
                told = true;
                continue;
            }
            touch(r, r.base + offset, 16, false, who);
            if (!b.swizzles.empty() && b.swizzles[offset / 16] && b.swizzles[offset / 16] != 1 + m.at.swizzle / 32 && !told) {
                report("swizzle", who.site, 0,
                       place_json(&r, r.base + offset, 16) + ",\"actor\":" + thread_json(current) + ",\"written_with\":" +
                           std::to_string((b.swizzles[offset / 16] - 1) * 32) + ",\"read_with\":" + std::to_string(m.at.swizzle));
                told = true;
            }
        }
    }
}

struct Product {
    uint32_t columns, first_row;  // of 16
    weft_element left, right;
    bool accumulate, a_in_registers;
    Matrix a, b;
    std::vector<void*> sums;
    std::vector<uint32_t> a_registers;
    const char* shared;

    void run() const {
        const uint32_t depth = b.depth;
        std::vector<float> rows(16 * depth), across(size_t(columns) * depth);
        for (uint32_t n = 0; n < columns; ++n) {
            for (uint32_t k = 0; k < depth; ++k) across[n * depth + k] = element_at(shared, b.offset(n, k), right);
        }
        for (uint32_t m = 0; m < 16; ++m) {
            for (uint32_t k = 0; k < depth; ++k) {
                if (!a_in_registers) {
                    rows[m * depth + k] = element_at(shared, a.offset(first_row + m, k), left);
                    continue;
                }
                // a register holds 4 bytes of k: pairs of 16-bit elements, or one of 32
                const uint32_t group = k * b.element / 4, per = 4 / b.element;
                const uint32_t thread = m % 8 * 4 + group % 4, reg = m / 8 + group / 4 * 2;
                rows[m * depth + k] = element_of(a_registers[thread * 4 + reg], k % per, left);
            }
        }
        for (uint32_t t = 0; t < 32; ++t) {
            for (uint32_t i = 0; i < columns / 2; ++i) {
                const uint32_t row = t / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + t % 4 * 2 + i % 2;
                const bool whole = b.element == 1;  // sums of integers, which double has exactly, and which wrap
                auto* const real = static_cast<float*>(sums[t]) + i;
                auto* const integer = static_cast<int32_t*>(sums[t]) + i;
                double sum = !accumulate ? 0.0 : whole ? double(*integer) : double(*real);
                for (uint32_t k = 0; k < depth; ++k) sum += double(rows[row * depth + k]) * double(across[column * depth + k]);
                if (whole) *integer = int32_t(int64_t(sum));
                else *real = float(sum);
            }
        }
    }
};

void issue(Multiplier& g, std::shared_ptr<Product> product, SiteId site) {
    Fiber& f = *current;
    Block& b = *f.block;
    if (g.agent == nobody) g.agent = new_agent(b, "wgmma", f.number / 32);
    const uint32_t stamp = f.products + 1;
    const Knowledge all = meet_of(g.here);
    const Who who{g.agent, stamp, &all, site, true, true, false};
    if (!product->a_in_registers) read_matrix(b.shared, product->a, product->first_row, 16, who, b);
    read_matrix(b.shared, product->b, 0, product->columns, who, b);
    auto work = std::make_shared<Work>();
    work->happen = [product] { product->run(); };
    if (g.issued.empty() || g.issued.back().stamp != stamp) g.issued.push_back({{}, stamp});
    g.issued.back().works.push_back(std::move(work));
    note(site, Kind::async_read, b.shared, b.shared.base, 16);
    if (product->first_row == 0) {  // the four warps ask for the columns once
        SiteCounts& counts = launch->counts[site];
        counts.requests += 1;
        counts.bytes += uint64_t((product->a_in_registers ? 0 : 64) + product->columns) * product->b.depth * product->b.element;
    }
    ++launch->progress;
}

}  // namespace
}  // namespace weft::sim

extern "C" {

uint32_t weft_shared_offset(const void* shared) {
    const auto address = reinterpret_cast<uintptr_t>(shared);
    bool stray;
    in_space(Space::shared, region_of(address, 1, stray), address, 1, WEFT_HERE);
    return uint32_t(address - current->block->shared.base);
}

void weft_wgmma(void* sums, uint32_t columns, const uint32_t* a_registers, const weft_matrix* a, const weft_matrix* b,
                bool accumulate, weft_element left, weft_element right) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    Block& block = *f.block;
    const auto address = reinterpret_cast<uintptr_t>(sums);
    const uint32_t bytes = columns * 2;
    if (!f.fenced) {
        report("missing wgmma fence", site, 0, ",\"actor\":" + thread_json(&f));
        f.fenced = true;
    }
    const bool flying = std::any_of(f.in_flight.begin(), f.in_flight.end(), [&](const InFlight& r) { return r.address == address; });
    uint32_t word = 0;
    if (accumulate && !flying) std::memcpy(&word, sums, 4);
    if (word == 0xfefefefeu) {
        report("uninitialised registers", site, 0, ",\"actor\":" + thread_json(&f) + ",\"what\":\"accumulators of wgmma\"");
    }
    f.in_flight.push_back({address, bytes, f.products + 1});
    if (a_registers) f.in_flight.push_back({reinterpret_cast<uintptr_t>(a_registers), 16, f.products + 1, true});
    const std::pair<uintptr_t, uint32_t> range{address, bytes};
    if (std::find(f.accumulators.begin(), f.accumulators.end(), range) == f.accumulators.end()) f.accumulators.push_back(range);
    Multiplier& g = block.multipliers[f.number / 32];
    if (!g.here.empty() && g.site != site) {
        report("divergent warp", site, g.site,
               ",\"actor\":" + thread_json(&f) + ",\"by\":" + thread_json(g.here[0].fiber) + ",\"kinds\":false");
    }
    g.site = site;
    g.here.push_back({&f, sums, a_registers});
    if (g.here.size() < 32) {
        wait("the threads of its warp", site);
        return;
    }
    std::sort(g.here.begin(), g.here.end(), [](const auto& x, const auto& y) { return x.fiber->number < y.fiber->number; });
    auto product = std::make_shared<Product>();
    product->columns = columns;
    product->first_row = f.number / 32 % 4 * 16;
    product->left = left;
    product->right = right;
    product->accumulate = accumulate;
    product->a_in_registers = a_registers != nullptr;
    product->a.element = product->b.element = bytes_of(left);
    product->a.depth = product->b.depth = 32 / bytes_of(left);
    if (a) product->a.at = *a;
    product->b.at = *b;
    product->shared = reinterpret_cast<const char*>(block.shared.base);
    for (const auto& given : g.here) {
        product->sums.push_back(given.sums);
        if (a_registers) product->a_registers.insert(product->a_registers.end(), given.a, given.a + 4);
    }
    issue(g, std::move(product), site);
    const auto here = std::move(g.here);
    g.here.clear();
    for (const auto& given : here) {
        ++given.fiber->knowledge.clock;
        if (given.fiber != &f) wake(given.fiber);
    }
}

void weft_wgmma_fence() { current->fenced = true; }

void weft_wgmma_commit() { ++current->products; }

void weft_wgmma_wait(uint32_t left) {
    Fiber& f = *current;
    Multiplier& g = f.block->multipliers[f.number / 32];
    if (f.products <= left) return;
    const uint32_t stamp = f.products - left;
    while (!g.issued.empty() && g.issued.front().stamp <= stamp) {
        for (const auto& work : g.issued.front().works) work->run();
        g.issued.pop_front();
    }
    learn(f.knowledge, g.agent, stamp);
    auto& flying = f.in_flight;
    flying.erase(std::remove_if(flying.begin(), flying.end(), [&](const InFlight& r) { return r.stamp <= stamp; }), flying.end());
}
}
