// Atomics and fences.
#pragma once
#include "weft/schedule.hpp"

namespace weft::sim {
namespace {

void atomic_access(uintptr_t a, uint32_t bytes, Atomic what, Order order, Scope scope, SiteId site) {
    Fiber& f = *current;
    Knowledge& k = f.knowledge;
    bool stray;
    Region* r = region_of(a, bytes, stray);
    const bool reads = what != Atomic::store, writes = what != Atomic::load;
    if (!r || stray || a % bytes) {
        report(!r || stray ? "out of bounds" : "misaligned", site, 0,
               place_json(r, a, bytes) + ",\"actor\":" + thread_json(&f) + ",\"action\":\"" + (writes ? "write" : "read") +
                   "\",\"alignment\":" + std::to_string(bytes));
        if (!mapped(r, a) || a % bytes) abort_launch();
        return;
    }
    Who who = self(site);
    who.atomic = true;
    if (!r->untracked) {
        if (r->space == Space::shared) peer_gone(*r, a, bytes, site);
        if (writes && reads && r->cells[(a - r->base) / r->granule].written == never) touch(*r, a, bytes, false, who);
        touch(*r, a, bytes, writes, who);
    }
    if (writes && r->read_only) report("write to an input", site, 0, place_json(r, a, bytes) + ",\"actor\":" + thread_json(&f));
    count(site, writes && reads ? Kind::atomic : writes ? Kind::write : Kind::read, *r, a, bytes);
    auto& there = launch->released[a];
    const bool near = there.block == f.block->number || (scope != Scope::block && there.scope != Scope::block);
    if (reads && near && !there.message.empty()) {
        if (uint32_t(order) & uint32_t(Order::acquire)) acquire(k, there.message);
        else f.heard.take(there.message);
    }
    if (writes) {
        const Message own = uint32_t(order) & uint32_t(Order::release) ? message_of(k) : f.at_fence;
        if (!reads) there.message = Message{};
        there.message.take(own);
        there.scope = scope;
        there.block = f.block->number;
        if (uint32_t(order) & uint32_t(Order::release)) ++k.clock;
        if (what != Atomic::exchange && what != Atomic::compare_exchange) ++launch->progress;
    }
}

}  // namespace
}  // namespace weft::sim

extern "C" {

void weft_atomic(const void* address, uint32_t bytes, Atomic what, Order order, Scope scope) {
    const SiteId site = WEFT_HERE;
    give_way();
    atomic_access(reinterpret_cast<uintptr_t>(address), bytes, what, order, scope, site);
}

void weft_fence(Scope) {
    Fiber& f = *current;
    acquire(f.knowledge, f.heard);
    f.heard = Message{};
    f.at_fence = message_of(f.knowledge);
    ++f.knowledge.clock;
}

void weft_arrive_at_grid() {
    Knowledge& k = current->knowledge;
    give_way();
    launch->of_arrived.take(message_of(k));
    ++k.clock;
    ++launch->arrived;
    ++launch->progress;
}

bool weft_grid_arrived() {
    give_way();
    if (launch->arrived < launch->blocks) return false;
    acquire(current->knowledge, launch->of_arrived);
    return true;
}

void weft_check_registers(const void* values, uint32_t bytes, const char* what) {
    uint32_t words;
    for (uint32_t k = 0; k < bytes; k += 4) {
        std::memcpy(&words, static_cast<const char*>(values) + k, 4);
        if (words == 0xfefefefeu) {
            report("uninitialised registers", WEFT_HERE, 0, ",\"actor\":" + thread_json(current) + ",\"what\":" + quoted(what));
            return;
        }
    }
}
}
