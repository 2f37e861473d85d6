// Watches accesses: bounds, alignment, values that are missing, races, and what they cost.
#pragma once
#include <link.h>

#include <cstring>

#include "weft/report.hpp"

namespace weft::sim {
namespace {

// ---------------------------------------------------------------- shadow

// Who accesses: a thread for itself, or an asynchronous agent for it.
struct Who {
    Actor self;
    uint32_t clock;
    const Knowledge* knowledge;  // of the thread that acts or issued
    SiteId site;
    bool agent = false, async_proxy = false, atomic = false;
};

bool knows(const Who& who, Actor a, uint32_t clock) { return who.knowledge->knows(a, clock); }

bool of_async_proxy(Actor a) {
    if (number_of(a) < launch->threads) return false;
    return launch->agents[a].kind != "cp.async";
}

void race(const Region& r, uintptr_t address, uint32_t bytes, const Who& who, bool write, Actor other, SiteId other_site,
          bool other_write, bool fence) {
    const bool host_agent = number_of(other) >= launch->threads;
    std::string kind = "race";
    std::string fields;
    if (fence) {
        kind = "missing proxy fence";
    } else if (who.agent && write && !other_write) {
        kind = "slot reused";
    } else if (!(who.agent && write) && host_agent && other_write && launch->agents[other].kind == "mbarrier" && current) {
        const auto waited = current->waited.find(uintptr_t(launch->agents[other].of));
        if (waited != current->waited.end()) {
            kind = "wrong phase";
            fields += ",\"waited_parity\":" + std::to_string(waited->second.first) +
                      ",\"waited_phases\":" + std::to_string(waited->second.second);
        }
    }
    report(kind.c_str(), who.site, other_site,
           place_json(&r, address, bytes) + ",\"actor\":" + actor_json(who.self) + ",\"action\":\"" + (write ? "write" : "read") +
               "\",\"by\":" + actor_json(other) + ",\"did\":\"" + (other_write ? "write" : "read") + "\"" + fields);
}

void forget_swizzle(const Region& r, uint64_t offset) {
    if (!current || !current->block || current->block->swizzles.empty() || &r != &current->block->shared) return;
    current->block->swizzles[offset / 16] = 0;
}

// Cells of shared memory have four bytes until some of these are accessed without the others: most never are.
void refine(Region& r, uint32_t granule) {
    const uint32_t parts = r.granule / granule;
    r.granule = granule;
    std::vector<Cell> cells(r.cell_count());
    for (size_t k = 0; k < cells.size(); ++k) {
        Cell& c = cells[k] = r.cells[k / parts];
        if (c.reader != many || k % parts == 0) continue;
        const uint32_t set = launch->accesses.make();
        launch->accesses[set] = launch->accesses[c.read];
        c.read = set;
    }
    r.cells = std::move(cells);
    launch->shared_granule = std::min(launch->shared_granule, granule);
}

// Checks and records one access to cells of a region, within its bounds.
void touch(Region& r, uintptr_t address, uint32_t bytes, bool write, const Who& who) {
    if (const uint64_t ends = (address - r.base) | bytes; r.space == Space::shared && ends % r.granule != 0) {
        refine(r, uint32_t(ends & -ends));
    }
    const uint64_t first = (address - r.base) / r.granule, last = (address + bytes - 1 - r.base) / r.granule;
    if (launch->dependent && current && !current->awaited && r.space == Space::global && (launch->first || !r.read_only)) {
        report("launch not awaited", who.site, 0,
               place_json(&r, address, bytes) + ",\"actor\":" + actor_json(who.self) + ",\"action\":\"" + (write ? "write" : "read") +
                   "\"");
    }
    bool told = false;  // once an access is enough
    for (uint64_t k = first; k <= last; ++k) {
        Cell& c = r.cells[k];
        const uintptr_t place = r.base + k * r.granule;
        const auto own = [&](Actor a) { return a == who.self && !who.agent; };
        const auto unordered = [&](Actor a, uint32_t clock, SiteId site, bool wrote) {
            if (told || own(a)) return;
            const bool seen = knows(who, a, clock);
            const bool fenced =
                !wrote || !who.async_proxy || of_async_proxy(a) || who.knowledge->proxy_knows(a, clock, r.space);
            if (seen && fenced) return;
            race(r, place, bytes, who, write, a, site, wrote, seen);
            told = true;
        };
        if (c.writer != nobody) {
            unordered(c.writer, c.written, c.write_site, true);
        } else if (!told && (c.written == hole || (c.written == never && !write))) {
            const bool outside = c.written == hole;
            report(outside ? "out of bounds" : "uninitialised read", who.site, 0,
                   place_json(&r, place, bytes) + ",\"between\":true,\"actor\":" + actor_json(who.self) + ",\"action\":\"" +
                       (write ? "write" : "read") + "\"");
            told = true;
        }
        if (c.reader == many && (write || launch->accesses[c.read].writes)) {
            for (const Access& a : launch->accesses[c.read].accesses) {
                if (!(write || a.write) || (who.atomic && a.atomic)) continue;
                a.each([&](Actor other) { unordered(other, a.clock, a.site, a.write); });
            }
        } else if (write && c.reader != nobody && c.reader != many) {
            unordered(c.reader, c.read, c.read_site, false);
        }
        if (write && r.space == Space::shared && !who.async_proxy) forget_swizzle(r, k * r.granule);
        if (write && !who.atomic) {
            if (c.reader == many) launch->accesses.release(c.read);
            c = Cell{who.self, who.clock, who.site, nobody, 0, 0};
        } else if (who.atomic || !r.read_only) {
            if (write && c.writer == nobody) c.written = by_host;  // there is a value from now on
            const bool alone = c.reader == nobody || c.reader == who.self || (c.reader != many && knows(who, c.reader, c.read));
            if (alone && !who.atomic) {
                c.reader = who.self;
                c.read = who.clock;
                c.read_site = who.site;
                continue;
            }
            if (c.reader != many) {
                const uint32_t set = launch->accesses.make();
                if (c.reader != nobody) launch->accesses[set].insert(Access(c.reader, c.read, c.read_site, false, false));
                c.reader = many;
                c.read = set;
            }
            launch->accesses[c.read].insert(Access(who.self, who.clock, who.site, who.atomic, write));
        }
    }
}

Who self(SiteId site) {
    Fiber* f = current;
    return {f->knowledge.self, f->knowledge.clock, &f->knowledge, site};
}

void release_accesses(Region& r) {
    for (Cell& c : r.cells) {
        if (c.reader == many) launch->accesses.release(c.read);
    }
}

// The region that holds an address; null where there is none. Sets `stray` where the address lies outside an array.
Region* region_of(uintptr_t address, uint32_t bytes, bool& stray) {
    Block* b = current->block;
    stray = false;
    if (address - b->shared.base < b->shared.bytes) {
        stray = address + bytes > b->shared.base + b->shared.bytes;
        return &b->shared;
    }
    if (address - arena < slot_bytes * slot_count) {
        Region* r = regions[(address - arena) >> slot_bits].get();
        stray = !r || address < r->base || address + bytes > r->base + r->bytes;
        return r;
    }
    for (const auto& other : launch->all_blocks) {
        if (other && address - other->shared.base < other->shared.bytes) return &other->shared;
    }
    return nullptr;
}

// Of an instruction that says which memory it accesses: a GPU faults where the address is in another one.
void in_space(Space space, const Region* r, uintptr_t address, uint32_t bytes, SiteId site) {
    const bool own = !r && address - current->stack < Stacks::usable();
    if (!own && (!r || r->space == space)) return;
    report("wrong memory", site, 0,
           place_json(r, address, bytes) + ",\"actor\":" + thread_json(current) + ",\"meant\":\"" +
               (space == Space::shared ? "shared" : "global") + "\"");
    abort_launch();
}

bool mapped(const Region* r, uintptr_t address) {
    return r && r->space == Space::global && address + guard_bytes / 2 > r->base && address < r->base + r->bytes + guard_bytes / 2;
}

struct Segments {
    uintptr_t address;
    bool found;
};
int find_segment(dl_phdr_info* info, size_t, void* data) {
    auto& s = *static_cast<Segments*>(data);
    for (int k = 0; k < info->dlpi_phnum; ++k) {
        const auto& h = info->dlpi_phdr[k];
        if (h.p_type == PT_LOAD && s.address - (info->dlpi_addr + h.p_vaddr) < h.p_memsz) s.found = true;
    }
    return s.found;
}

// An address in no array, no shared memory and no stack: constants of the program are fine, all else is not memory.
void elsewhere(uintptr_t address, uint32_t bytes, bool write, SiteId site) {
    Segments s{address, false};
    dl_iterate_phdr(find_segment, &s);
    if (s.found && !write) return;
    report("out of bounds", site, 0,
           place_json(nullptr, address, bytes) + ",\"actor\":" + thread_json(current) + ",\"action\":\"" + (write ? "write" : "read") +
               "\"");
    abort_launch();
}

void peer_gone(Region& r, uintptr_t address, uint32_t bytes, SiteId site) {
    if (r.space != Space::shared || &r == &current->block->shared) return;
    for (const auto& b : launch->all_blocks) {
        if (b && &b->shared == &r && (b->finished || b->live == 0)) {
            report("peer exited", site, 0,
                   place_json(&r, address, bytes) + ",\"actor\":" + thread_json(current) + ",\"peer\":" + std::to_string(b->rank));
        }
    }
}

bool count(SiteId site, Kind kind, const Region& r, uintptr_t address, uint32_t bytes) {
    Fiber* f = current;
    launch->site_kind[site] = uint32_t(kind) | bytes << 8;
    launch->site_object[site] = uint64_t(r.space) << 63 | uint64_t(r.number) << 40 |
                                (r.space == Space::shared ? (address - r.base) & ((1ull << 40) - 1) : 0);
    Warp& warp = f->block->warps[f->warp];
    return warp.counts.add(site, f->lane, address, bytes, r.space, launch->counts, warp.live);
}

void let_others();

// A thread touches its own registers, which products may be writing.
void accumulator(Fiber& f, uintptr_t address, uint32_t bytes, bool write, const void* place) {
    for (const InFlight& r : f.in_flight) {
        if ((write || !r.operand) && address < r.address + r.bytes && r.address < address + bytes) {
            report("registers in flight", site_of(place), 0,
                   ",\"actor\":" + thread_json(&f) + ",\"action\":\"" + (write ? "write" : "read") + "\"");
        }
    }
    if (!write) return;
    for (const auto& [from, size] : f.accumulators) {
        if (address < from + size && from < address + bytes) f.fenced = false;
    }
}

// Every access of the program's own text comes here.
inline void access(const void* pointer, uint32_t bytes, bool write, uint32_t alignment, const void* place) {
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    Fiber* f = current;
    if (!f) return;
    if (address - f->stack < Stacks::usable()) {
        if (!f->accumulators.empty()) accumulator(*f, address, bytes, write, place);
        return;
    }
    const SiteId site = site_of(place);
    if ((++f->steps & 0xffff) == 0 && std::chrono::steady_clock::now() - launch->moved > patience) {
        report("does not end", site, 0, ",\"actor\":" + thread_json(f));
        abort_launch();
    }
    bool stray;
    Region* r = region_of(address, bytes, stray);
    if (!r && !stray) {
        elsewhere(address, bytes, write, site);
        return;
    }
    if (stray) {
        report("out of bounds", site, 0,
               place_json(r, address, bytes) + ",\"actor\":" + thread_json(f) + ",\"action\":\"" + (write ? "write" : "read") + "\"");
        if (!mapped(r, address)) abort_launch();
        return;
    }
    if (address % alignment) {
        report("misaligned", site, 0,
               place_json(r, address, bytes) + ",\"actor\":" + thread_json(f) + ",\"alignment\":" + std::to_string(alignment) +
                   ",\"action\":\"" + (write ? "write" : "read") + "\"");
        abort_launch();
    }
    if (write && r->read_only) {
        report("write to an input", site, 0, place_json(r, address, bytes) + ",\"actor\":" + thread_json(f));
    }
    if (write) ++launch->progress;
    if (!r->untracked) {
        if (r->space == Space::shared) peer_gone(*r, address, bytes, site);
        touch(*r, address, bytes, write, self(site));
    }
    if (count(site, write ? Kind::write : Kind::read, *r, address, bytes)) let_others();
}

}  // namespace
}  // namespace weft::sim
