// What the lanes of one row do together: reductions and scans over a warp or a block, in a fixed order of combination.
//
// A team is the threads of a row: of a part of a warp, a warp, or all the warps of a block; threadIdx.x counts its threads.
#pragma once
#include "weft/algebra.cuh"

namespace weft {

// ---------------------------------------------------------------- shuffles

// Values of several parts are moved part by part.
namespace detail {
template <class V, class = void> struct Compound {
    static constexpr bool value = false;
};
template <class V> struct Compound<V, decltype(void(V::compound))> {
    static constexpr bool value = true;
};
struct ShuffleUp {
    int distance, width;
    uint32_t present;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_up_sync(present, value, distance, width));
    }
};
struct ShuffleDown {
    int distance, width;
    uint32_t present;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_down_sync(present, value, distance, width));
    }
};
struct ShuffleXor {
    int distance;
    uint32_t lanes;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_xor_sync(lanes, value, distance));
    }
};
struct ShuffleFrom {
    int lane, width;
    uint32_t present;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_sync(present, value, lane, width));
    }
};
}  // namespace detail

// Of neighbours among `width` lanes. present: the lanes that come here together.
template <class T>
WEFT_FUNCTION T shuffle_up(const T& value, int distance, int width = 32, uint32_t present = 0xffffffffu) {
    return detail::ShuffleUp{distance, width, present}(value);
}
template <class T>
WEFT_FUNCTION T shuffle_down(const T& value, int distance, int width = 32, uint32_t present = 0xffffffffu) {
    return detail::ShuffleDown{distance, width, present}(value);
}
template <class T> WEFT_FUNCTION T shuffle_xor(const T& value, int distance, uint32_t lanes = 0xffffffffu) {
    return detail::ShuffleXor{distance, lanes}(value);
}
template <class T>
WEFT_FUNCTION T shuffle(const T& value, int lane, int width, uint32_t present = 0xffffffffu) {
    return detail::ShuffleFrom{lane, width, present}(value);
}

// ---------------------------------------------------------------- reductions

// The lanes of a team: of a warp, or of a power of two of its threads, which lie side by side in a block of (threads, teams).
template <int threads> WEFT_FUNCTION uint32_t lanes_of_team() {
    if constexpr (threads >= 32) {
        return 0xffffffffu;
    } else {
        const uint32_t lane = (threadIdx.y * threads + threadIdx.x) % 32;
        return ((1u << threads) - 1) << (lane / threads * threads);
    }
}

// The combination of the values of `lanes` neighbouring lanes (a power of two), in lane order, in all of them. present: the
// lanes that come here together.
template <class Algebra, int lanes>
WEFT_FUNCTION typename Algebra::Value reduce_lanes(typename Algebra::Value value, uint32_t present = 0xffffffffu) {
    const int lane = threadIdx.x % lanes;
#pragma unroll
    for (int distance = 1; distance < lanes; distance *= 2) {
        const auto other = shuffle_xor(value, distance, present);
        value = lane & distance ? Algebra::combine(other, value) : Algebra::combine(value, other);
    }
    return value;
}

// The least power of two that is no less.
template <int n> inline constexpr int power_of_two = 2 * power_of_two<(n + 1) / 2>;
template <> inline constexpr int power_of_two<1> = 1;

// Orders the memory accesses of a team: what its threads did before, before what any of them does after.
template <int threads> WEFT_FUNCTION void sync_team() {
    if constexpr (threads <= 32) {
        __syncwarp(lanes_of_team<threads>());
    } else {
        __syncthreads();
    }
}

// The values that the rows of a warp have of each of their places, folded: rows of so many threads lie side by side, and the
// r-th of them has the r-th run of these results in the beginning of its values. In a tree, the same for all.
template <class Algebra, int threads, int places, int distance = 16, int half = places / 2>
WEFT_FUNCTION void fold_rows(typename Algebra::Value (&values)[places]) {
    static_assert(half > 0 && distance >= threads, "each row has some of the results");
    const bool late = (threadIdx.y * threads + threadIdx.x) & distance;
#pragma unroll
    for (int k = 0; k < half; ++k) {
        const auto first = values[k], second = values[k + half];
        const auto own = late ? second : first, other = shuffle_xor(late ? first : second, distance);
        values[k] = late ? Algebra::combine(other, own) : Algebra::combine(own, other);
    }
    if constexpr (distance > threads) fold_rows<Algebra, threads, places, distance / 2, half / 2>(values);
}

// Both halves of reduce for a team of several warps, so that several values meet at one barrier: each is told, then come the
// barrier and what has been told of each.
template <class Algebra> WEFT_FUNCTION void tell(typename Algebra::Value value, typename Algebra::Value* scratch) {
    value = reduce_lanes<Algebra, 32>(value);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
}
template <class Algebra, int threads> WEFT_FUNCTION typename Algebra::Value told(const typename Algebra::Value* scratch) {
    constexpr int warps = threads / 32, lanes = power_of_two<warps>;
    const int lane = threadIdx.x % lanes;
    return reduce_lanes<Algebra, lanes>(lane < warps ? scratch[lane] : Algebra::identity());
}

// The combination of the values of a team, in thread order, in all its threads. `scratch` has room for one value a warp;
// it may be used again after the next barrier.
template <class Algebra, int threads>
WEFT_FUNCTION typename Algebra::Value reduce(typename Algebra::Value value, typename Algebra::Value* scratch) {
    if constexpr (threads <= 32) {
        return reduce_lanes<Algebra, threads>(value, lanes_of_team<threads>());
    } else {
        tell<Algebra>(value, scratch);
        __syncthreads();
        return told<Algebra, threads>(scratch);
    }
}

// Where more groups of threads than these lie one below the other, one of them combines what all have told: shared memory would
// be busy longer with what all of them read than a barrier takes.
inline constexpr int most_read_by_all = 4;

// The combination of the values of a block's threads that lie one below the other, threadIdx.x % across alike, in the order of
// threads, in all of them. `scratch` has room for `across` values of each warp, or of each `across` threads where these are more;
// it may be used again after the next barrier.
template <class Algebra, int across, int threads>
WEFT_FUNCTION typename Algebra::Value reduce_down(typename Algebra::Value value, typename Algebra::Value* scratch) {
    constexpr int group = across > 32 ? across : 32, groups = threads / group;
    const int lane = threadIdx.x % 32, x = threadIdx.x % across;
#pragma unroll
    for (int distance = across; distance < (threads < 32 ? threads : 32); distance *= 2) {
        const auto other = shuffle_xor(value, distance, lanes_of_team<threads>());
        value = lane & distance ? Algebra::combine(other, value) : Algebra::combine(value, other);
    }
    if constexpr (groups > 1) {
        if (int(threadIdx.x) % group < across) scratch[int(threadIdx.x) / group * across + x] = value;
        __syncthreads();
        if (groups <= most_read_by_all || int(threadIdx.x) < across) {
            value = scratch[x];
#pragma unroll
            for (int k = 1; k < groups; ++k) value = Algebra::combine(value, scratch[k * across + x]);
        }
        if constexpr (groups > most_read_by_all) {
            if (int(threadIdx.x) < across) scratch[x] = value;
            __syncthreads();
            value = scratch[x];
        }
    }
    return value;
}

// ---------------------------------------------------------------- scans

// What the lanes before this one combine to (after it, if `backwards`), and what all of them do.
template <class Algebra> struct Prefix {
    typename Algebra::Value before;
    typename Algebra::Value all;
};

template <class Algebra, int lanes, bool backwards>
WEFT_FUNCTION Prefix<Algebra> scan_lanes(typename Algebra::Value value, uint32_t present = 0xffffffffu) {
    const auto moved = [&](int distance) {
        return backwards ? shuffle_down(value, distance, lanes, present) : shuffle_up(value, distance, lanes, present);
    };
    const int lane = threadIdx.x % lanes;
    const int position = backwards ? lanes - 1 - lane : lane;
#pragma unroll
    for (int distance = 1; distance < lanes; distance *= 2) {
        const auto other = moved(distance);
        const auto combined = Algebra::combine(other, value);  // by all lanes: a choice between values, no branch
        value = position >= distance ? combined : value;
    }
    auto before = moved(1);
    if (position == 0) before = Algebra::identity();
    return {before, shuffle(value, backwards ? 0 : lanes - 1, lanes, present)};
}

// The same over a team. `scratch` as for reduce.
template <class Algebra, int threads, bool backwards>
WEFT_FUNCTION Prefix<Algebra> scan(typename Algebra::Value value, typename Algebra::Value* scratch) {
    if constexpr (threads <= 32) {
        return scan_lanes<Algebra, threads, backwards>(value, lanes_of_team<threads>());
    } else {
        constexpr int warps = threads / 32;
        const int warp = threadIdx.x / 32;
        const Prefix<Algebra> own = scan_lanes<Algebra, 32, backwards>(value);
        if (threadIdx.x % 32 == 0) scratch[warp] = own.all;
        __syncthreads();
        const Prefix<Algebra> others = scan_lanes<Algebra, warps, backwards>(scratch[threadIdx.x % warps]);
        const auto before = shuffle(others.before, warp, warps);
        return {Algebra::combine(before, own.before), others.all};
    }
}

// What the points of a team up to the end of each thread's do (from its points on, if `backwards`): in the warps before it, and
// all of them.
template <class Algebra> struct Through {
    typename Algebra::Value warps;
    typename Algebra::Value all;
};

// `scratch` as for reduce.
template <class Algebra, int threads, bool backwards>
WEFT_FUNCTION Through<Algebra> scan_through(typename Algebra::Value value, typename Algebra::Value* scratch) {
    constexpr int lanes = threads < 32 ? threads : 32;
    const int lane = threadIdx.x % lanes;
    const int position = backwards ? lanes - 1 - lane : lane;
#pragma unroll
    for (int distance = 1; distance < lanes; distance *= 2) {
        const auto other = backwards ? shuffle_down(value, distance) : shuffle_up(value, distance);
        const auto combined = Algebra::combine(other, value);  // by all lanes: a choice between values, no branch
        value = position >= distance ? combined : value;
    }
    if constexpr (threads <= 32) {
        return {Algebra::identity(), value};
    } else {
        constexpr int warps = threads / 32;
        const int warp = threadIdx.x / 32;
        if (position == 31) scratch[warp] = value;
        __syncthreads();
        const Prefix<Algebra> others = scan_lanes<Algebra, warps, backwards>(scratch[threadIdx.x % warps]);
        const auto before = shuffle(others.before, warp, warps);
        return {before, Algebra::combine(before, value)};
    }
}

// What states are multiplied by at each step of `states_through`, where several are multiplied alike.
template <int lanes, class T> struct Multiples {
    T step[lanes > 16 ? 5 : lanes > 8 ? 4 : lanes > 4 ? 3 : lanes > 2 ? 2 : 1];
};
template <int lanes, bool backwards, class T> WEFT_FUNCTION Multiples<lanes, T> multiples_through(T own) {
    Multiples<lanes, T> out;
#pragma unroll
    for (int distance = 1, k = 0; distance < lanes; distance *= 2, ++k) {
        out.step[k] = own;
        own = (backwards ? shuffle_down(own, distance, lanes) : shuffle_up(own, distance, lanes)) * own;
    }
    return out;
}
// What a lane's points make of a state that they multiply by the first of these.
template <int lanes, class T> struct Multiplied {
    const Multiples<lanes, T>& multiples;
    T addend;
};
namespace detail {
template <int lanes, bool backwards, class T> WEFT_FUNCTION void through(AffineMap<T>& own, int distance, int) {
    own = Affine<T>::combine(backwards ? shuffle_down(own, distance, lanes) : shuffle_up(own, distance, lanes), own);
}
template <int lanes, bool backwards, class T> WEFT_FUNCTION void through(Multiplied<lanes, T>& own, int distance, int k) {
    const T other = backwards ? shuffle_down(own.addend, distance, lanes) : shuffle_up(own.addend, distance, lanes);
    own.addend = AffineMap<T>{own.multiples.step[k], own.addend}(other);
}
}  // namespace detail

// The states after each lane's points (from its points on, if `backwards`) as addends, of what these do to states. Those of the
// first lane need none: their coefficient is 0, so that lanes before which there are no others combine with themselves in vain.
// Several states go through the lanes side by side.
template <int lanes, bool... backwards, class... Own> WEFT_FUNCTION void states_through(Own&... own) {
#pragma unroll
    for (int distance = 1, k = 0; distance < lanes; distance *= 2, ++k) {
        (detail::through<lanes, backwards>(own, distance, k), ...);
    }
}

// What the lane before this one has (after it, if `backwards`); the first one has `first`.
template <int lanes, bool backwards, class T> WEFT_FUNCTION T from_lane_before(const T& value, const T& first) {
    const int lane = threadIdx.x % lanes;
    const T other = backwards ? shuffle_down(value, 1) : shuffle_up(value, 1);
    return lane == (backwards ? lanes - 1 : 0) ? first : other;
}

// What comes before the runs of a thread (after them, if `backwards`), and all of a team's runs.
template <class Algebra> struct Runs {
    typename Algebra::Value warp;  // what the warps before do
    typename Algebra::Value all;
};

// The same where every thread has several runs, the k-th of a warp's lanes side by side, and the warps' own side by side:
// before[k] is what the runs of the warp before this one combine to. `scratch` as for reduce.
template <class Algebra, int threads, bool backwards, int runs>
WEFT_FUNCTION Runs<Algebra> scan_runs(
    const typename Algebra::Value (&own)[runs], typename Algebra::Value (&before)[runs], typename Algebra::Value* scratch) {
    auto all = Algebra::identity();
#pragma unroll
    for (int k = 0; k < runs; ++k) {
        const int run = backwards ? runs - 1 - k : k;
        const auto lanes = scan_lanes<Algebra, threads < 32 ? threads : 32, backwards>(own[run], lanes_of_team<threads>());
        before[run] = k == 0 ? lanes.before : Algebra::combine(all, lanes.before);
        all = k == 0 ? lanes.all : Algebra::combine(all, lanes.all);
    }
    if constexpr (threads <= 32) {
        return {Algebra::identity(), all};
    } else {
        constexpr int warps = threads / 32;
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 == 0) scratch[warp] = all;
        __syncthreads();
        const Prefix<Algebra> others = scan_lanes<Algebra, warps, backwards>(scratch[threadIdx.x % warps]);
        return {shuffle(others.before, warp, warps), others.all};
    }
}

// For each of a thread's values: what the threads above it (below it, if `backwards`) have, threadIdx.x % across alike, and
// what all of them have. `scratch` as for reduce_down, for each of the values; it may be used again after the next barrier.
template <class Algebra, int across, int threads, bool backwards, int values>
WEFT_FUNCTION void scan_down(
    const typename Algebra::Value (&own)[values], Prefix<Algebra> (&out)[values], typename Algebra::Value* scratch) {
    constexpr int group = across > 32 ? across : 32, groups = threads / group;
    const int x = threadIdx.x % across, y = threadIdx.x / group;
    const int lane = threadIdx.x % 32, position = backwards ? 31 - lane : lane;
    if constexpr (threads == across) {
#pragma unroll
        for (int v = 0; v < values; ++v) out[v] = {Algebra::identity(), own[v]};
        return;
    }
#pragma unroll
    for (int v = 0; v < values; ++v) {
        auto all = own[v];
#pragma unroll
        for (int distance = across; distance < 32; distance *= 2) {  // the rows of a warp
            const auto other = backwards ? shuffle_down(all, distance) : shuffle_up(all, distance);
            const auto combined = Algebra::combine(other, all);
            all = position >= distance ? combined : all;
        }
        out[v].before = Algebra::identity();
        if constexpr (across < 32) {
            const auto other = backwards ? shuffle_down(all, across) : shuffle_up(all, across);
            if (position >= across) out[v].before = other;
        }
        if (across >= 32 || position >= 32 - across) scratch[(v * groups + y) * across + x] = all;
    }
    __syncthreads();
    if constexpr (groups > 2 * most_read_by_all) {
        const auto place = [&](int v, int k) { return (v * groups + (backwards ? groups - 1 - k : k)) * across + x; };
        if (int(threadIdx.x) < across) {
#pragma unroll
            for (int v = 0; v < values; ++v) {
                auto all = scratch[place(v, 0)];
#pragma unroll
                for (int k = 1; k < groups; ++k) {
                    all = Algebra::combine(all, scratch[place(v, k)]);
                    scratch[place(v, k)] = all;
                }
            }
        }
        __syncthreads();
        const int k = backwards ? groups - 1 - y : y;
#pragma unroll
        for (int v = 0; v < values; ++v) {
            const auto before = k > 0 ? scratch[place(v, k - 1)] : Algebra::identity();
            out[v] = {across < 32 ? Algebra::combine(before, out[v].before) : before, scratch[place(v, groups - 1)]};
        }
    } else {
#pragma unroll
        for (int v = 0; v < values; ++v) {
            auto all = Algebra::identity(), before = all;
#pragma unroll
            for (int k = 0; k < groups; ++k) {
                const int other = backwards ? groups - 1 - k : k;
                if (other == y) before = all;
                all = Algebra::combine(all, scratch[(v * groups + other) * across + x]);
            }
            out[v] = {across < 32 ? Algebra::combine(before, out[v].before) : before, all};
        }
    }
}

template <class Algebra, int across, int threads, bool backwards>
WEFT_FUNCTION void scan_down(
    const typename Algebra::Value& own, Prefix<Algebra>& out, typename Algebra::Value* scratch) {
    const typename Algebra::Value owns[1] = {own};
    Prefix<Algebra> found[1];
    scan_down<Algebra, across, threads, backwards>(owns, found, scratch);
    out = found[0];
}

// ---------------------------------------------------------------- in order

// Whether something holds for all threads of a team.
template <int threads> WEFT_FUNCTION bool all_of_team(bool holds) {
    if constexpr (threads <= 32) {
        return __all_sync(lanes_of_team<threads>(), holds);
    } else {
        return __syncthreads_and(holds);
    }
}

// A value of one thread of a block, in all of them.
template <class T> WEFT_FUNCTION T from_thread(T value, int thread) {
    __shared__ T kept;
    __syncthreads();  // all have read the one before
    if (int(threadIdx.x) == thread) kept = value;
    __syncthreads();
    return kept;
}

// For what cannot be composed: the threads of a team change a state one after another (the last one first, if `backwards`).
// `step(state...)` does what a thread does; `keep(state...)` is called by each with the state that it starts from. In the end
// all have the state after the last one.
template <int threads, bool backwards, class Step, class Keep, class... T>
WEFT_FUNCTION void in_turn(Step step, Keep keep, T&... state) {
    constexpr int lanes = threads <= 32 ? threads : 32, warps = threads / lanes;
#pragma unroll 1
    for (int k = 0; k < threads; ++k) {
        const int turn = backwards ? threads - 1 - k : k;
        if (int(threadIdx.x) == turn) keep(state...);
        step(state...);  // by all threads: a choice between values, no branch
        ((state = shuffle(state, turn % lanes, lanes, lanes_of_team<threads>())), ...);
        if constexpr (warps > 1) {
            if (k % lanes == lanes - 1) ((state = from_thread(state, turn)), ...);
        }
    }
}

// The same for threads that have several runs each, as in scan_runs: `step(run, state...)` and `keep(run, state...)`.
template <int threads, bool backwards, int runs, class Step, class Keep, class... T>
WEFT_FUNCTION void runs_in_turn(Step step, Keep keep, T&... state) {
    constexpr int lanes = threads <= 32 ? threads : 32, warps = threads / lanes;
    const int lane = threadIdx.x % lanes, warp = threadIdx.x / lanes;
#pragma unroll 1
    for (int w = 0; w < warps; ++w) {
        const int own_warp = backwards ? warps - 1 - w : w;
#pragma unroll
        for (int r = 0; r < runs; ++r) {
            const int run = backwards ? runs - 1 - r : r;
#pragma unroll 1
            for (int k = 0; k < lanes; ++k) {
                const int turn = backwards ? lanes - 1 - k : k;
                if (warp == own_warp && lane == turn) keep(run, state...);
                step(run, state...);
                ((state = shuffle(state, turn, lanes, lanes_of_team<threads>())), ...);
            }
        }
        if constexpr (warps > 1) ((state = from_thread(state, own_warp * 32 + (backwards ? 0 : 31))), ...);
    }
}

// A value of one row of threads of a block, in the threads below and above.
template <int across, class T> WEFT_FUNCTION T from_row(T value, int row) {
    __shared__ T kept[across];
    __syncthreads();  // all have read the ones before
    if (int(threadIdx.x) / across == row) kept[threadIdx.x % across] = value;
    __syncthreads();
    return kept[threadIdx.x % across];
}

// The same for threads that lie one below the other, as in scan_down: those of one row of threads at a time.
template <int across, int threads, bool backwards, class Step, class Keep, class... T>
WEFT_FUNCTION void down_in_turn(Step step, Keep keep, T&... state) {
    constexpr int down = threads / across;
    const int y = threadIdx.x / across;
#pragma unroll 1
    for (int k = 0; k < down; ++k) {
        const int turn = backwards ? down - 1 - k : k;
        if (y == turn) keep(state...);
        step(state...);
        if constexpr (down > 1) ((state = from_row<across>(state, turn)), ...);
    }
}

}  // namespace weft
