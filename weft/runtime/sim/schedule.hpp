// Who runs when: the threads of a block, the blocks of a launch, and what happens where nobody can go on.
#pragma once
#include <link.h>

#include <tuple>

#include "weft/watch.hpp"

namespace weft::sim {
namespace {

// ---------------------------------------------------------------- taking turns

void to_scheduler() {
    Fiber* f = current;
    Worker* w = f->block->worker;
    current = nullptr;
    switch_to(f->context, w->context);
    current = f;
}

[[noreturn]] void leave(State state) {
    current->state = state;
    to_scheduler();
    std::abort();  // never resumed
}

void wait(const char* what, SiteId site) {
    Fiber* f = current;
    f->state = State::waiting;
    f->waits_for = what;
    f->wait_site = site;
    to_scheduler();
}

void wake(Fiber* f, bool progress = true) {
    launch->moved = std::chrono::steady_clock::now();
    f->state = State::ready;
    f->block->ready.push_back(f);
    if (progress) ++launch->progress;
}

void let_others() {
    current->state = State::ready;
    current->block->ready.push_back(current);
    to_scheduler();
}

// Under most seeds another thread may come first, so that atomics of many threads mix.
void give_way() {
    if (launch->seed != 0 && launch->random() % 4 == 0) let_others();
}

void spin(SiteId site, const char* what) {
    Fiber* f = current;
    f->state = State::spinning;
    f->waits_for = what;
    f->wait_site = site;
    f->block->spinning.push_back(f);
    to_scheduler();
}

void release_barrier(Block& b, Barrier& barrier) {
    ++launch->barriers;
    uint32_t last = ~0u;  // the warp whose requests are counted: those of a warp mostly wait one after another
    for (Fiber* f : barrier.waiting) {
        if (f->warp != last) b.warps[last = f->warp].counts.close(launch->counts);
        adopt(f->knowledge, barrier.message);
        ++f->knowledge.clock;
        wake(f);
    }
    barrier = Barrier{};
}

void fiber_main() {
    Fiber* f = current;
    Block& b = *f->block;
    Self own{};
    own.thread = unflatten(f->number, launch->block_size);
    own.block = b.index;
    own.block_size = launch->block_size;
    own.grid_size = launch->grid;
    own.linear = f->number;
    own.cluster_rank = b.rank;
    own.cluster_size = launch->cluster_blocks;
    f->self = &own;
    launch->entry(launch->arguments);
    leave(State::done);
}

Cluster& cluster_of(const Block& b);

// The barrier of a cluster waits for those of its threads that have not exited.
void meet_cluster(Cluster& c) {
    if (c.arrived == 0 || c.arrived + c.exited < launch->threads * launch->cluster_blocks) return;
    c.arrived = 0;
    ++c.phase;
    ++launch->barriers;
    c.complete = c.gathering;
    c.gathering = Message{};
    auto waiting = std::move(c.waiting);
    c.waiting.clear();
    for (Fiber* other : waiting) wake(other);
    ++launch->progress;
}

void leave_cluster(const Fiber& f) {
    Cluster& c = cluster_of(*f.block);
    ++c.exited;
    if (f.met_cluster && f.cluster_phase == c.phase) --c.arrived;
    meet_cluster(c);
}

void thread_ended(Fiber& f) {
    launch->moved = std::chrono::steady_clock::now();
    Block& b = *f.block;
    --b.live;
    ++b.exited;
    ++launch->progress;
    b.warps[f.warp].live &= ~(1u << f.lane);
    for (Groups* groups : {&f.copies, &f.bulk}) {
        if (groups == &f.bulk && !launch->aborted && !(groups->pending.empty() && groups->open.empty())) {
            report("bulk copy unfinished", f.bulk_site, 0, ",\"actor\":" + actor_json(f.knowledge.self));
        }
        for (const auto& group : groups->pending) {
            for (const auto& work : group.works) work->run();
        }
        for (const auto& work : groups->open) work->run();
    }
    if (launch->cluster_blocks > 1 || !b.mbarriers.empty()) b.known_at_exit.take(f.knowledge);
    if (launch->cluster_blocks > 1 && !launch->aborted) leave_cluster(f);
}

bool perform_some(Block& b, bool all) {
    auto& list = b.transfers;
    list.erase(std::remove_if(list.begin(), list.end(), [](const WorkPointer& w) { return w->done; }), list.end());
    if (list.empty()) return false;
    if (all) {
        const auto now = list;
        list.clear();
        for (const auto& w : now) w->run();
    } else {
        const size_t k = launch->random() % list.size();
        const WorkPointer w = list[k];
        list.erase(list.begin() + int64_t(k));
        w->run();
    }
    ++launch->progress;
    return true;
}

std::string waits_json() {
    // where the threads of live blocks wait, those of a warp at one place together
    std::string text;
    int told = 0;
    for (const auto& b : launch->all_blocks) {
        if (!b || b->finished) continue;
        std::map<std::pair<SiteId, std::string>, std::pair<uint32_t, uint32_t>> places;  // count, first
        for (uint32_t k = 0; k < launch->threads; ++k) {
            const Fiber& f = b->fibers[k];
            if (f.state == State::done || f.state == State::ready) continue;
            auto [entry, added] = places.try_emplace({f.wait_site, f.waits_for}, std::make_pair(0u, k));
            ++entry->second.first;
        }
        for (const auto& [key, value] : places) {
            if (told++ >= 8) break;
            text += std::string(text.empty() ? "" : ",") + "{\"site\":" + std::to_string(key.first) + ",\"for\":" + quoted(key.second) +
                    ",\"threads\":" + std::to_string(value.first) + ",\"first\":" + actor_json(actor(b->number, value.second)) + "}";
        }
    }
    return ",\"waits\":[" + text + "]";
}

// Another block that may go on, or a new one; null if there is none.
Worker* next_worker(Worker& me);

void hand_over(Worker& me, Worker& to) {
    std::unique_lock<std::mutex> lock(launch->mutex);
    me.running = false;
    to.running = true;
    to.awake.notify_one();
    me.awake.wait(lock, [&] { return me.running; });
}

void stuck_at_barrier(Block& b, bool& released) {
    // threads that ended can come to no barrier any more: tell it once, and let the others go on
    for (Barrier& barrier : b.barriers) {
        if (barrier.waiting.empty() || barrier.expected < barrier.arrived) continue;
        if (b.exited && barrier.arrived == b.live && barrier.waiting.size() == b.live) {
            uint32_t gone = 0;
            while (b.fibers[gone].state != State::done) ++gone;
            report("divergent barrier", barrier.site, 0,
                   ",\"actor\":" + actor_json(barrier.waiting[0]->knowledge.self) + ",\"by\":" + actor_json(actor(b.number, gone)) +
                       ",\"arrived\":" + std::to_string(barrier.arrived) + ",\"expected\":" + std::to_string(barrier.expected) +
                       ",\"ended\":" + std::to_string(b.exited));
            release_barrier(b, barrier);
            released = true;
        }
    }
}

// An mbarrier that has all its arrivals, and waits for bytes that no copy brings.
bool bytes_missing() {
    bool found = false;
    for (const auto& b : launch->all_blocks) {
        if (!b) continue;
        for (auto& [address, m] : b->mbarriers) {
            if (m.waiting.empty() || m.left != 0 || m.bytes == 0) continue;
            report("byte count", m.expect_site, m.copy_site,
                   ",\"actor\":" + actor_json(m.waiting[0].first->knowledge.self) + ",\"bytes_missing\":" + std::to_string(m.bytes));
            found = true;
        }
    }
    return found;
}

// Lanes that wait for others of their warp which have ended or wait elsewhere.
bool warp_apart(Block& b) {
    for (uint32_t k = 0; k < launch->threads; ++k) {
        const Fiber& f = b.fibers[k];
        if (!f.in_collective) continue;
        for (uint32_t l = 0; l < 32; ++l) {
            const uint32_t other = f.warp * 32 + l;
            if (!(f.gave_mask >> l & 1) || other >= launch->threads || b.fibers[other].in_collective) continue;
            const Fiber& o = b.fibers[other];
            if (o.state == State::done) {
                report("shuffle mask", f.wait_site, 0,
                       ",\"actor\":" + actor_json(f.knowledge.self) + ",\"mask\":" + std::to_string(f.gave_mask) + ",\"absent\":" +
                           std::to_string(l) + ",\"exists\":true");
            } else {
                report("divergent warp", f.wait_site, o.wait_site,
                       ",\"actor\":" + actor_json(f.knowledge.self) + ",\"by\":" + actor_json(o.knowledge.self) + ",\"kinds\":true");
            }
            return true;
        }
    }
    return false;
}

// Nobody in the block can go on by itself. False ends the launch.
bool stuck(Block& b) {
    bool released = false;
    stuck_at_barrier(b, released);
    if (released) return true;
    b.tried = launch->progress;
    if (Worker* other = next_worker(*b.worker)) {
        hand_over(*b.worker, *other);
        return !launch->aborted;
    }
    if (launch->progress != b.tried) return true;
    SiteId site = 0;
    for (uint32_t k = 0; k < launch->threads && !site; ++k) {
        if (b.fibers[k].state == State::waiting || b.fibers[k].state == State::spinning) site = b.fibers[k].wait_site;
    }
    bool apart = false;
    for (const auto& each : launch->all_blocks) apart = apart || (each && !each->finished && warp_apart(*each));
    if (!apart && !bytes_missing()) report("deadlock", site, 0, waits_json());
    launch->aborted = true;
    return false;
}

void run_block(Block& b) {
    Worker& w = *b.worker;
    while (!launch->aborted) {
        if (launch->eagerness == 1) perform_some(b, true);
        if (launch->eagerness == 2 && launch->random() % 4 == 0) perform_some(b, false);
        if (b.ready.empty()) {
            if (perform_some(b, false)) continue;
            if (b.live == 0) break;
            if (b.tried != launch->progress) b.idle = 0;
            if (!b.spinning.empty() && b.idle < idle_limit) {
                ++b.idle;
                b.tried = launch->progress;
                b.ready.swap(b.spinning);
                for (Fiber* f : b.ready) f->state = State::ready;
                continue;
            }
            if (!stuck(b)) return;
            if (!b.spinning.empty()) {
                b.ready.swap(b.spinning);
                for (Fiber* f : b.ready) f->state = State::ready;
            }
            continue;
        }
        Fiber* f;
        if (launch->seed == 0) {
            f = b.ready.front();
            b.ready.erase(b.ready.begin());
        } else {
            const size_t k = launch->random() % b.ready.size();
            f = b.ready[k];
            b.ready[k] = b.ready.back();
            b.ready.pop_back();
        }
        current = f;
        switch_to(w.context, f->context);
        current = nullptr;
        if (f->state == State::done) thread_ended(*f);
    }
}

int find_tls(dl_phdr_info* info, size_t, void* data) {
    auto& [address, base, bytes] = *static_cast<std::tuple<uintptr_t, uintptr_t, uint64_t>*>(data);
    for (int k = 0; k < info->dlpi_phnum; ++k) {
        const auto& h = info->dlpi_phdr[k];
        if (h.p_type == PT_LOAD && address - (info->dlpi_addr + h.p_vaddr) < h.p_memsz) {
            for (int t = 0; t < info->dlpi_phnum; ++t) {
                if (info->dlpi_phdr[t].p_type == PT_TLS) {
                    base = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
                    bytes = info->dlpi_phdr[t].p_memsz;
                }
            }
            return 1;
        }
    }
    return 0;
}

// A variable in shared memory, from the program's symbols; what lies between them is nobody's. `guard`: the compiler's own
// note that a variable needs no construction.
struct SharedVariable {
    uint64_t offset, bytes, guard;
};
std::vector<SharedVariable> shared_variables;

void make_block(Worker& w, uint64_t number) {
    auto owner = std::make_unique<Block>();
    Block& b = *owner;
    b.number = uint32_t(number);
    b.index = unflatten(number, launch->grid);
    const Index3 c = launch->cluster;
    b.rank = b.index.x % c.x + c.x * (b.index.y % c.y + c.y * (b.index.z % c.z));
    b.worker = &w;
    w.block = &b;
    launch->anchor();
    std::tuple<uintptr_t, uintptr_t, uint64_t> tls{reinterpret_cast<uintptr_t>(launch->entry), 0, 0};
    dl_iterate_phdr(find_tls, &tls);
    b.shared.base = std::get<1>(tls);
    b.shared.bytes = std::get<2>(tls);
    b.shared.space = Space::shared;
    b.shared.number = uint32_t(number);
    b.shared.granule = launch->shared_granule;
    b.shared.cells = std::move(w.cells);
    if (b.shared.cells.size() != b.shared.cell_count()) b.shared.track(hole);
    for (const auto& [offset, bytes, guard] : shared_variables) {
        const uint64_t granule = b.shared.granule;
        std::fill_n(b.shared.cells.begin() + int64_t(offset / granule), bytes / granule, Cell{nobody, guard ? by_host : never});
        std::memset(reinterpret_cast<void*>(b.shared.base + offset), poison, bytes);
    }
    const uint32_t n = launch->threads;
    b.actors = n;
    b.fibers = std::make_unique<Fiber[]>(n);
    b.live = n;
    b.warps.resize((n + 31) / 32);
    b.multipliers.resize((n + 31) / 32);
    if (!w.stacks) w.stacks = std::make_unique<Stacks>(n);
    for (uint32_t k = 0; k < n; ++k) {
        Fiber& f = b.fibers[k];
        f.block = &b;
        f.number = k;
        f.lane = k % 32;
        f.warp = k / 32;
        f.stack = reinterpret_cast<uintptr_t>(w.stacks->low(k));
        f.knowledge.self = actor(b.number, k);
        b.warps[f.warp].live |= 1u << f.lane;
        prepare(f.context, w.stacks->low(k), Stacks::usable(), fiber_main);
        b.ready.push_back(&f);
    }
    if (launch->seed != 0) std::shuffle(b.ready.begin(), b.ready.end(), launch->random);
    launch->all_blocks.push_back(std::move(owner));
    if (launch->cluster_blocks > 1) {
        const uint64_t key = (uint64_t(b.index.z / c.z) * launch->grid.y + b.index.y / c.y) * launch->grid.x + b.index.x / c.x;
        launch->clusters[key].blocks.push_back(&b);
    }
    ++launch->progress;
}

Cluster& cluster_of(const Block& b) {
    const Index3 c = launch->cluster;
    return launch->clusters[(uint64_t(b.index.z / c.z) * launch->grid.y + b.index.y / c.y) * launch->grid.x + b.index.x / c.x];
}

// What other blocks did to a block's shared memory must be known to it when it ends: else it may come later than that.
void accesses_after_exit(Block& b) {
    const Message& m = b.known_at_exit;
    const auto known = [&](Actor a, uint32_t clock) { return block_of(a) == b.number || (m.seen && clock <= m.seen->at(a)); };
    const auto tell = [&](uint64_t k, Actor a, SiteId site, bool write) {
        report("peer exited", site, 0,
               place_json(&b.shared, b.shared.base + k, 1) + ",\"actor\":" + actor_json(a) + ",\"peer\":" + std::to_string(b.rank) +
                   ",\"action\":\"" + (write ? "write" : "read") + "\"");
    };
    for (const auto& [offset, bytes, guard] : shared_variables) {
        for (uint64_t k = offset; k < offset + bytes; k += b.shared.granule) {
            const Cell& c = b.shared.cells[k / b.shared.granule];
            if (c.writer != nobody && !known(c.writer, c.written)) tell(k, c.writer, c.write_site, true);
            if (c.reader == many) {
                for (const Access& a : launch->accesses[c.read].accesses) {
                    a.each([&](Actor other) {
                        if (!known(other, a.clock)) tell(k, other, a.site, a.write);
                    });
                }
            } else if (c.reader != nobody && !known(c.reader, c.read)) {
                tell(k, c.reader, c.read_site, false);
            }
        }
    }
}

// Bulk loads into a block's shared memory must be known to be over when it ends: else they may land in another block's.
void loads_after_exit(Block& b) {
    const Message& m = b.known_at_exit;
    SiteId told = 0;
    for (const auto& [offset, bytes, guard] : shared_variables) {
        for (uint64_t k = offset; k < offset + bytes; k += b.shared.granule) {
            const Cell& c = b.shared.cells[k / b.shared.granule];
            if (c.writer == nobody || block_of(c.writer) != b.number || number_of(c.writer) < launch->threads) continue;
            if (c.write_site == told || (m.seen && c.written <= m.seen->at(c.writer))) continue;
            if (launch->agents[c.writer].kind != "mbarrier") continue;
            told = c.write_site;
            report("bulk copy unfinished", told, 0,
                   place_json(&b.shared, b.shared.base + k, 1) + ",\"actor\":" + actor_json(c.writer) + ",\"load\":true");
        }
    }
}

void end_block(Block& b) {
    for (Warp& w : b.warps) w.counts.close(launch->counts);
    if (!b.mbarriers.empty() && !launch->aborted) loads_after_exit(b);
    if (launch->cluster_blocks > 1 && !launch->aborted) accesses_after_exit(b);
    b.finished = true;
    ++launch->progress;
    if (launch->cluster_blocks > 1 && !launch->aborted) {
        // its shared memory belongs to its cluster until all of that has ended
        Cluster& c = cluster_of(b);
        const auto ended = [&] {
            return c.blocks.size() == launch->cluster_blocks &&
                   std::all_of(c.blocks.begin(), c.blocks.end(), [](const Block* o) { return o->finished; });
        };
        while (!ended() && !launch->aborted) {
            b.tried = launch->progress;
            Worker* other = next_worker(*b.worker);
            if (other) {
                hand_over(*b.worker, *other);
            } else {
                report("deadlock", 0, 0, waits_json());
                launch->aborted = true;
            }
        }
    }
    release_accesses(b.shared);
    b.worker->cells = std::move(b.shared.cells);
    b.shared.bytes = 0;  // the next block of this worker has the same addresses
    if (launch->cluster_blocks == 1) {
        auto& all = launch->all_blocks;
        all.erase(std::find_if(all.begin(), all.end(), [&](const auto& o) { return o.get() == &b; }));
    }
}

// The order in which blocks start: cluster after cluster.
uint64_t block_number(uint64_t k) {
    if (launch->cluster_blocks == 1) return k;
    const Index3 c = launch->cluster, g = launch->grid;
    const Index3 counts{g.x / c.x, g.y / c.y, g.z / c.z};
    const Index3 which = unflatten(k / launch->cluster_blocks, counts), inside = unflatten(k % launch->cluster_blocks, c);
    const Index3 at{which.x * c.x + inside.x, which.y * c.y + inside.y, which.z * c.z + inside.z};
    return at.x + uint64_t(g.x) * (at.y + uint64_t(g.y) * at.z);
}

void work(Worker& w) {
    while (!launch->aborted && launch->next_block < launch->blocks) {
        make_block(w, block_number(launch->next_block++));
        run_block(*w.block);
        end_block(*w.block);
        w.block = nullptr;
    }
    w.finished = true;
}

void worker_main(Worker& w) {
    {
        std::unique_lock<std::mutex> lock(launch->mutex);
        w.awake.wait(lock, [&] { return w.running; });
    }
    work(w);
    // whoever is unfinished goes on, the first worker last
    Worker* to = launch->workers[0].get();
    for (const auto& other : launch->workers) {
        if (!other->finished && (to->finished || other->block)) to = other.get();
    }
    std::unique_lock<std::mutex> lock(launch->mutex);
    w.running = false;
    to->running = true;
    to->awake.notify_one();
}

Worker* next_worker(Worker& me) {
    for (const auto& other : launch->workers) {
        if (other.get() == &me || other->finished) continue;
        if (other->block && other->block->tried != launch->progress) return other.get();
    }
    if (launch->next_block < launch->blocks && launch->workers.size() < worker_limit) {
        launch->workers.push_back(std::make_unique<Worker>());
        Worker& made = *launch->workers.back();
        made.thread = std::thread([&made] { worker_main(made); });
        return &made;
    }
    return nullptr;
}

}  // namespace
}  // namespace weft::sim
