// The blocks of a cluster, and the registers that warps hand to each other.
#pragma once
#include "weft/mbarriers.hpp"

namespace weft::sim {
namespace {

void arrive_at_cluster(Cluster& c) {
    Fiber& f = *current;
    f.cluster_phase = c.phase;
    f.met_cluster = true;
    ++c.arrived;
    meet_cluster(c);
}

}  // namespace
}  // namespace weft::sim

extern "C" {

void* weft_peer(const void* shared, uint32_t rank) {
    return reinterpret_cast<void*>(translate(shared, rank, WEFT_HERE));
}

void weft_cluster_arrive() {
    Cluster& c = cluster_of(*current->block);
    c.gathering.take(current->knowledge);
    ++current->knowledge.clock;
    arrive_at_cluster(c);
}

void weft_cluster_arrive_relaxed() {
    Cluster& c = cluster_of(*current->block);
    c.gathering.take(current->at_making);
    arrive_at_cluster(c);
}

void weft_cluster_wait() {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    Cluster& c = cluster_of(*f.block);
    while (c.phase == f.cluster_phase) {
        c.waiting.push_back(&f);
        wait("the threads of its cluster", site);
    }
    acquire(f.knowledge, c.complete);
    ++f.cluster_waits;
}

void weft_registers(uint32_t registers, bool more) {
    const SiteId site = WEFT_HERE;
    Fiber& f = *current;
    Block& b = *f.block;
    if (f.registers == 0) f.registers = launch->registers ? launch->registers : std::min(65536 / launch->threads / 8 * 8, 255u);
    const bool wrong = more ? registers < f.registers : registers > f.registers;
    if (wrong) {
        report("register budget", site, 0,
               ",\"actor\":" + thread_json(&f) + ",\"has\":" + std::to_string(f.registers) + ",\"asks\":" + std::to_string(registers));
    }
    while (more && b.registers_free < int64_t(registers) - int64_t(f.registers)) {
        b.wanting_registers.push_back(&f);
        wait("registers that other warps give up", site);
    }
    b.registers_free -= int64_t(registers) - int64_t(f.registers);
    f.registers = registers;
    auto waiting = std::move(b.wanting_registers);
    b.wanting_registers.clear();
    for (Fiber* other : waiting) wake(other);
}

void weft_await_launch() { current->awaited = true; }
}
