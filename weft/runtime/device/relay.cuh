// Blocks that go through the tiles of rows side by side, in clusters (sm_90): of each row one block of a cluster hears what the
// tiles of the cluster do to its state, tells the other clusters what all of these do, hears what theirs do, and tells each of its
// own cluster the state before its tile. So little is told through memory, and what a block is told comes by itself.
// All blocks run at once (a cooperative launch). The same values are combined in the same order by all.
#pragma once
#include "weft/barrier.cuh"
#include "weft/chain.cuh"
#include "weft/cluster_team.cuh"

namespace weft {

// What the runs of a row before each one do, instead of what that does, and what all do. next: from run to run.
template <class Algebra, int runs, bool backwards>
WEFT_FUNCTION typename Algebra::Value compose_runs(typename Algebra::Value* first, int32_t next) {
    constexpr int side_by_side = runs < 8 ? runs : 8;
    auto all = Algebra::identity();
    for (int k = 0; k < runs; k += side_by_side) {
        typename Algebra::Value own[side_by_side];
        const auto place = [&](int j) { return (backwards ? runs - 1 - k - j : k + j) * next; };
#pragma unroll
        for (int j = 0; j < side_by_side; ++j) {
            if (k + j < runs) own[j] = first[place(j)];
        }
#pragma unroll
        for (int j = 0; j < side_by_side; ++j) {
            if (k + j >= runs) continue;
            first[place(j)] = all;
            all = Algebra::combine(all, own[j]);
        }
    }
    return all;
}

// A state that a block is told, and whether it has to answer with the one after its tile, which nobody could compose.
template <class State> struct ToldState {
    State value;
    uint32_t asked[(sizeof(State) + 3) / 4];
};

// wide: rows of a block; blocks: of a cluster; most: clusters that a lane of a warp that passes on hears of. The memory has room
// for 4 * rows * parts * (told_words<Value> + 2 * told_words<State>), and is 0 at first. Turns count from 1. A block tells of a turn
// when it has been told the states of that four before, or later ones, and so has whoever has told of that one: nobody needs what
// another cluster told eight turns before, nor what its own did four turns before. in_turn: warps that pass on the same rows.
template <class Algebra, class State, int wide, int blocks, int most, int in_turn, int kept> struct Relay {
    using Value = typename Algebra::Value;
    static constexpr int places = 2 * kept, own = (wide + blocks - 1) / blocks;
    static constexpr int across = power_of_two<own < 32 ? own : 32>, down = 32 / across;  // lanes of a warp that passes on
    static constexpr int members = (blocks + down - 1) / down;  // of a lane
    static_assert(in_turn <= kept, "a warp that waits for a turn knows that the one before of its slot is over");
    static constexpr int gathering = (own + 31) / 32, passing = gathering * in_turn;  // warps

    struct Shared {
        Slot<Value> told[kept][blocks][own];  // of the rows of which this block hears, by blocks of its cluster
        Slot<ToldState<State>> known[kept + 1][wide];  // states before tiles, and after all
        State first[wide];  // before the first one
        Mbarrier tells[kept], heard[kept + 1];
        State after[passing / in_turn * 32];  // the states after a turn, which the next warp goes on from
        Mbarrier passes[passing], gathered[gathering][kept], done[gathering][kept];
    };

    Shared& shared;
    uint64_t* memory;
    uint32_t row, rows, rows_here;  // the block's first, all, and as many as it has
    uint32_t part, parts;

    WEFT_FUNCTION Relay(Shared& shared, uint64_t* memory, int64_t row, int64_t rows, int64_t rows_here, int64_t part, int64_t parts)
        : shared(shared), memory(memory), row(uint32_t(row)), rows(uint32_t(rows)), rows_here(uint32_t(rows_here)),
          part(uint32_t(part)), parts(uint32_t(parts)) {}

    // By one thread, before the others' first use. tellers: warps that tell. last: the states after all turns are told, too.
    template <bool last> WEFT_FUNCTION void init(int tellers, uint32_t turns) const {
        for (int k = 0; k < kept; ++k) shared.tells[k].init(1), shared.heard[k].init(tellers);
        for (int k = 0; k < passing; ++k) shared.passes[k].init(1);
        for (int k = 0; k < kept * gathering; ++k) {
            shared.gathered[k / kept][k % kept].init(1), shared.done[k / kept][k % kept].init(1);
        }
        if (rows_told() > 0) {
            for (uint32_t k = 0; k < kept && k < turns; ++k) shared.tells[k].arrive_expect(bytes_told());
        }
        shared.heard[kept].init(1);
        if (last) shared.heard[kept].arrive_expect(bytes_heard());
    }
    // Of how many rows this block hears, and the bytes of a turn that it is told of them, and that all of its rows are told.
    WEFT_FUNCTION int32_t rows_told() const { return minimum(own, int32_t(rows_here) - int32_t(part % blocks) * own); }
    WEFT_FUNCTION uint32_t bytes_told() const { return uint32_t(rows_told()) * blocks * uint32_t(sizeof(Slot<Value>)); }
    WEFT_FUNCTION uint32_t bytes_heard() const { return rows_here * uint32_t(sizeof(Slot<ToldState<State>>)); }

    // What a cluster's tiles do to a row, of rows side by side; after these the state after them where that was asked, and of each part.
    WEFT_FUNCTION uint64_t* place(uint32_t of_row, uint32_t cluster, uint32_t turn) const {
        return memory + ((turn % places * (parts / blocks) + cluster) * rows + row + of_row) * told_words<Value>;
    }
    WEFT_FUNCTION uint64_t* place_of_answer(uint32_t of_row, uint32_t cluster, uint32_t turn) const {
        return memory + kept * rows * parts * told_words<Value>
             + ((turn % places * rows + row + of_row) * (parts / blocks) + cluster) * told_words<State>;
    }
    WEFT_FUNCTION uint64_t* place_of_part(uint32_t of_row, uint32_t of, uint32_t turn) const {
        return memory + kept * rows * parts * (told_words<Value> + told_words<State>)
             + ((turn % kept * rows + row + of_row) * parts + of) * told_words<State>;
    }

    // Where what is told of a turn lies in shared memory, and the phase of its barriers.
    static WEFT_FUNCTION uint32_t slot(uint32_t turn) { return (turn - 1) % kept; }
    static WEFT_FUNCTION uint32_t parity(uint32_t turn) { return (turn - 1) / kept & 1; }

    // ---------------------------------------------------------------- threads with points

    // What the block's tile does to a row, by a thread for each.
    WEFT_FUNCTION void tell(int32_t of_row, const Value& value, uint32_t turn) const {
        const Slot<Value> told{value};
        send_after(&shared.told[slot(turn)][part % blocks][of_row % own], told, shared.tells[slot(turn)], of_row / own);
    }
    // By a thread of each warp that tells, after that; first: of one of them.
    WEFT_FUNCTION void expect(uint32_t turn, bool first) const {
        if (first) shared.heard[slot(turn)].arrive_expect(bytes_heard());
        else shared.heard[slot(turn)].arrive();
    }
    // Wait for the states before the block's tile. They come to shared memory, so that no cache has to forget what it has, as it
    // would for what other blocks have written elsewhere.
    WEFT_FUNCTION void hear(uint32_t turn) const { shared.heard[slot(turn)].wait(parity(turn)); }
    WEFT_FUNCTION ToldState<State> known(int32_t of_row, uint32_t turn) const { return shared.known[slot(turn)][of_row].value; }
    // The same of the states after all.
    WEFT_FUNCTION void hear_end() const { shared.heard[kept].wait(0); }
    WEFT_FUNCTION State known_end(int32_t of_row) const { return shared.known[kept][of_row].value.value; }
    // The state after it, where that is asked.
    WEFT_FUNCTION void answer(int32_t of_row, const State& after, uint32_t turn) const {
        weft::tell(place_of_part(uint32_t(of_row), part, turn), after, turn);
    }

    // ---------------------------------------------------------------- warps that pass on

    // What the rows of lanes before this one do, and all of them: as in scan_down.
    static WEFT_FUNCTION Prefix<Algebra> scan_warp(Value value) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int distance = across; distance < 32; distance *= 2) {
            const Value other = shuffle_up(value, distance), combined = Algebra::combine(other, value);
            value = lane >= distance ? combined : value;
        }
        Prefix<Algebra> out{Algebra::identity(), value};
        if constexpr (down > 1) {
            const Value before = shuffle_up(value, across);
            if (lane >= across) out.before = before;
            out.all = shuffle(value, 32 - across + lane % across, 32);
        }
        return out;
    }

    static WEFT_FUNCTION bool composes(const Value& value, const State& after, bool known_not_a_number) {
        return known_not_a_number || (finite_parts(value) && is_finite(after));
    }

    // Tell a block of the cluster the state before its tile, which goes to the slot of a turn.
    WEFT_FUNCTION void pass(int32_t of_row, uint32_t block, const State& state, bool asked, uint32_t to) const {
        Slot<ToldState<State>> told{};
        told.value.value = state;
        told.value.asked[0] = asked;
        send_after(&shared.known[to][of_row], told, shared.heard[to], block);
    }

    // Tell the other clusters what this one does in each turn, by `gathering` warps, which wait for nobody else, other than that
    // what has been told of a turn some before has been passed on.
    WEFT_FUNCTION void gather(uint32_t turns, int warp) const {
        const int lane = threadIdx.x % 32, x = warp * 32 + lane % across, y = lane / across;
        const int32_t count = rows_told(), of_row = int32_t(part % blocks) * own + x;
        if (warp * 32 >= count) return;
        const bool here = x < count, arms = lane == 0 && warp == 0;
        for (uint32_t turn = 1; turn <= turns; ++turn) {
            shared.tells[slot(turn)].wait(parity(turn));
            if (arms && turn + kept <= turns) shared.tells[slot(turn)].arrive_expect(bytes_told());
            shared.done[warp][slot(turn)].wait(parity(turn) ^ 1);
            if (parts > blocks) {
                Value all = Algebra::identity();
#pragma unroll
                for (int e = 0; e < members; ++e) {
                    const int block = y * members + e;
                    if (here && block < blocks) all = Algebra::combine(all, shared.told[slot(turn)][block][x].value);
                }
                all = scan_warp(all).all;
                if (y == down - 1 && here) weft::tell(place(of_row, part / blocks, turn), all, turn);
            }
            __syncwarp();
            shared.gathered[warp][slot(turn)].arrive_if(lane == 0);
        }
    }

    // overflows: what is composed may overflow where no state does. sticks: a state that is not a number stays so. last: the states
    // after all turns are told as those of one more. warp: of all that pass on; those of the same 32 rows take turns, so that one
    // asks what is told of a turn while another waits for the one before.
    template <bool overflows, bool sticks, bool last> WEFT_FUNCTION void pass_on(uint32_t turns, int warp) const {
        const int lane = threadIdx.x % 32, some = warp / in_turn, x = some * 32 + lane % across, y = lane / across;
        const int32_t count = rows_told(), of_row = int32_t(part % blocks) * own + x;
        if (some * 32 >= count) return;
        const bool here = x < count;
        uint32_t turn = 1 + warp % in_turn;
        for (; turn <= turns; turn += in_turn) {
            shared.gathered[some][slot(turn)].wait(parity(turn));
            pass_on<overflows, sticks>(turn, warp, x, y, here);
            __syncwarp();
            shared.done[some][slot(turn)].arrive_if(lane == 0);
        }
        if (last && turn == turns + 1) {
            const State state = received(turn, warp, here ? of_row : -1);
            for (int block = y; here && block < blocks; block += down) pass(of_row, block, state, false, kept);
        }
    }
    template <bool overflows, bool sticks> WEFT_FUNCTION void pass_on(uint32_t turn, int warp, int x, int y, bool here) const {
        const int32_t of_row = int32_t(part % blocks) * own + x;
        const uint32_t clusters = parts / blocks;
        Value value[members], all = Algebra::identity();
#pragma unroll
        for (int e = 0; e < members; ++e) {
            const int block = y * members + e;
            value[e] = here && block < blocks ? shared.told[slot(turn)][block][x].value : Algebra::identity();
            all = Algebra::combine(all, value[e]);
        }
        const Prefix<Algebra> inside = scan_warp(all);
        Others others;
        if (clusters > 1) others = hear_clusters(of_row, turn, here);
        const State state = received(turn, warp, here ? of_row : -1);
        State start = state, after = state;
        bool whole = true;
        if (clusters == 1) {
            Algebra::apply(inside.all, after);
            if constexpr (overflows) whole = composes(inside.all, after, false);
        } else {
            others.template apply<overflows>(int(part / blocks), start, after, whole);
        }
        if constexpr (overflows) {
            if (!__all_sync(0xffffffffu, whole || !here || (sticks && is_nan(state)))) {
                after = state;
                pass_on_in_turn<sticks>(of_row, turn, after, here);
                handed_on(turn, warp, after);
                return;
            }
        }
        handed_on(turn, warp, after);
        State before = start;
        Algebra::apply(inside.before, before);
        if constexpr (overflows) {
            State reached = before;
            bool fine = is_finite(before);
#pragma unroll
            for (int e = 0; e < members; ++e) {
                if (y * members + e >= blocks) continue;
                Algebra::apply(value[e], reached);
                fine = fine && composes(value[e], reached, false);
            }
            if (!__all_sync(0xffffffffu, fine || !here || (sticks && is_nan(start)))) {
                pass_in_turn<sticks>(of_row, turn, start, here);
                return;
            }
        }
#pragma unroll
        for (int e = 0; e < members; ++e) {
            const int block = y * members + e;
            if (here && block < blocks) pass(of_row, block, before, false, slot(turn));
            Algebra::apply(value[e], before);
        }
    }

    // The states of a warp's rows before a turn, and after it.
    WEFT_FUNCTION State received(uint32_t turn, int warp, int32_t of_row) const {
        if (turn == 1) return of_row < 0 ? State{} : shared.first[of_row];
        shared.passes[warp].wait((turn - 2) / in_turn & 1);
        return shared.after[warp / in_turn * 32 + threadIdx.x % across];
    }
    WEFT_FUNCTION void handed_on(uint32_t turn, int warp, const State& after) const {
        const int lane = threadIdx.x % 32, some = warp / in_turn;
        __syncwarp();  // all have received theirs
        if (lane < across) shared.after[some * 32 + lane] = after;
        __syncwarp();
        shared.passes[some * in_turn + turn % in_turn].arrive_if(lane == 0);
    }

    // What a lane has heard of clusters, and what those of the lanes before it do, and all.
    struct Others {
        Told<Value, 1, most> told;
        Prefix<Algebra> outside;
        int begin, count;

        // From the states before a turn: those before one of the clusters, and after all.
        template <bool overflows> WEFT_FUNCTION void apply(int cluster, State& start, State& after, bool& whole) const {
            Algebra::apply(outside.all, after);
            State reached = start;
            Algebra::apply(outside.before, reached);
            if constexpr (overflows) whole = is_finite(after) && is_finite(reached);
            start = reached;
#pragma unroll
            for (int j = 0; j < most; ++j) {
                if (begin + j == cluster) start = reached;
                if (j >= count) continue;
                Algebra::apply(told.value(0, j), reached);
                if constexpr (overflows) whole = whole && composes(told.value(0, j), reached, false);
            }
            start = shuffle(start, cluster / most * across + threadIdx.x % across, 32);
        }
    };

    // Hear what clusters do in a turn.
    WEFT_FUNCTION Others hear_clusters(int32_t of_row, uint32_t turn, bool here) const {
        const int y = threadIdx.x % 32 / across;
        const uint32_t clusters = parts / blocks;
        Others others;
        others.begin = y * most, others.count = here ? int(clusters) - others.begin : 0;
        const uint64_t* const from = place(of_row, others.begin, turn);
        others.told.ask(from, rows, 0, others.count, turn);
        while (!__all_sync(0xffffffffu, others.told.there(turn))) others.told.ask_again(from, rows, 0, turn);
        Value all = Algebra::identity();
#pragma unroll
        for (int j = 0; j < most; ++j) {
            if (j < others.count) all = Algebra::combine(all, others.told.value(0, j));
        }
        others.outside = scan_warp(all);
        return others;
    }

    // The same where composing overflows: from block to block of the cluster, of which one whose tile cannot be composed answers.
    // By all lanes, some of which have a row.
    template <bool sticks> WEFT_FUNCTION State pass_in_turn(int32_t of_row, uint32_t turn, State state, bool here) const {
        for (int block = 0; block < blocks; ++block) {
            const Value value = here ? shared.told[slot(turn)][block][of_row % own].value : Algebra::identity();
            State after = state;
            Algebra::apply(value, after);
            const bool asked = here && !composes(value, after, sticks && is_nan(state));
            __syncwarp();  // all know what the block has told, which may go on then
            if (here && threadIdx.x % 32 < across) pass(of_row, block, state, asked, slot(turn));
            state = asked ? weft::told<State>(place_of_part(of_row, part / blocks * blocks + block, turn), turn) : after;
        }
        __syncwarp();
        return state;
    }

    // And from cluster to cluster.
    template <bool sticks> WEFT_FUNCTION void pass_on_in_turn(int32_t of_row, uint32_t turn, State& state, bool here) const {
        const uint32_t clusters = parts / blocks;
        for (uint32_t k = 0; k < clusters; ++k) {
            Value value = Algebra::identity();
            if (here) value = clusters == 1 ? all_of_cluster(of_row, turn) : weft::told<Value>(place(of_row, k, turn), turn);
            State after = state;
            Algebra::apply(value, after);
            const bool asked = here && !composes(value, after, sticks && is_nan(state));
            if (k == part / blocks) {
                const State last = pass_in_turn<sticks>(of_row, turn, state, here);
                if (asked) weft::tell(place_of_answer(of_row, k, turn), last, turn), after = last;
            } else if (asked) {
                after = weft::told<State>(place_of_answer(of_row, k, turn), turn);
            }
            state = after;
        }
        __syncwarp();
    }

    WEFT_FUNCTION Value all_of_cluster(int32_t of_row, uint32_t turn) const {
        Value all = Algebra::identity();
        for (int block = 0; block < blocks; ++block) all = Algebra::combine(all, shared.told[slot(turn)][block][of_row % own].value);
        return all;
    }
};

}  // namespace weft
