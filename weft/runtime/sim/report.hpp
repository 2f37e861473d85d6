// Places of the program, and findings about them as JSON.
#pragma once
#include <cstdio>

#include "weft/state.hpp"

namespace weft::sim {
namespace {

// ---------------------------------------------------------------- sites

// What an access is, for the table of costs.
enum class Kind : uint32_t { none, read, write, atomic, async_read, async_write };

// An instruction that accesses two memories has two sites: the second is marked in its highest bit.
const void* second(const void* place) { return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(place) | 1ull << 63); }

SiteId site_of(const void* place) {
    auto [entry, added] = launch->site_index.try_emplace(place, SiteId(launch->site_place.size()));
    if (added) {
        launch->site_place.push_back(place);
        launch->counts.emplace_back();
        launch->site_kind.push_back(0);
        launch->site_object.push_back(0);
    }
    return entry->second;
}

#define WEFT_HERE site_of(__builtin_return_address(0))

// ---------------------------------------------------------------- findings

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

std::string thread_json(const Fiber* f) {
    char text[160];
    const Self& s = *f->self;
    std::snprintf(text, sizeof text, "{\"block\":[%u,%u,%u],\"thread\":[%u,%u,%u]}", s.block.x, s.block.y, s.block.z, s.thread.x,
                  s.thread.y, s.thread.z);
    return text;
}

Index3 unflatten(uint64_t k, Index3 size) {
    return {uint32_t(k % size.x), uint32_t(k / size.x % size.y), uint32_t(k / size.x / size.y)};
}

std::string actor_json(Actor a) {
    if (a == nobody) return "null";
    const uint32_t number = number_of(a);
    char text[200];
    const Index3 b = unflatten(block_of(a), launch->grid);
    if (number < launch->threads) {
        const Index3 t = unflatten(number, launch->block_size);
        std::snprintf(text, sizeof text, "{\"block\":[%u,%u,%u],\"thread\":[%u,%u,%u]}", b.x, b.y, b.z, t.x, t.y, t.z);
    } else {
        const AgentName& name = launch->agents[a];
        std::snprintf(text, sizeof text, "{\"block\":[%u,%u,%u],\"agent\":\"%s\",\"of\":%llu}", b.x, b.y, b.z, name.kind.c_str(),
                      static_cast<unsigned long long>(name.of));
    }
    return text;
}

// fields: more of the JSON object, each beginning with a comma.
void report(const char* kind, SiteId site, SiteId other, const std::string& fields) {
    Found& found = launch->findings[{kind, site, other}];
    if (found.times++) return;
    char head[128];
    std::snprintf(head, sizeof head, "{\"kind\":\"%s\",\"site\":%u,\"other\":%u", kind, site, other);
    found.json = head + fields;
}

std::string place_json(const Region* r, uintptr_t address, uint32_t bytes) {
    char text[200];
    if (!r) {
        std::snprintf(text, sizeof text, ",\"address\":%llu,\"bytes\":%u", static_cast<unsigned long long>(address), bytes);
    } else {
        std::snprintf(text, sizeof text, ",\"space\":\"%s\",\"region\":%u,\"offset\":%lld,\"bytes\":%u",
                      r->space == Space::shared ? "shared" : "global", r->number, static_cast<long long>(address - r->base), bytes);
    }
    return text;
}

[[noreturn]] void leave(State state);

// Nothing sensible can follow: the launch ends here.
[[noreturn]] void abort_launch() {
    launch->aborted = true;
    if (current) leave(State::done);
    std::abort();
}

}  // namespace
}  // namespace weft::sim
