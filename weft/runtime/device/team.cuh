// What the lanes of one row do together: reductions and scans over a warp or a block, in a fixed order of combination.
//
// A team is the threads of a row: a warp, or all the warps of a block; threadIdx.x counts its threads.
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
    int distance;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_up_sync(0xffffffffu, value, distance));
    }
};
struct ShuffleDown {
    int distance;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_down_sync(0xffffffffu, value, distance));
    }
};
struct ShuffleXor {
    int distance;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_xor_sync(0xffffffffu, value, distance));
    }
};
struct ShuffleFrom {
    int lane, width;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else return T(__shfl_sync(0xffffffffu, value, lane, width));
    }
};
}  // namespace detail

template <class T> WEFT_FUNCTION T shuffle_up(const T& value, int distance) { return detail::ShuffleUp{distance}(value); }
template <class T> WEFT_FUNCTION T shuffle_down(const T& value, int distance) {
    return detail::ShuffleDown{distance}(value);
}
template <class T> WEFT_FUNCTION T shuffle_xor(const T& value, int distance) {
    return detail::ShuffleXor{distance}(value);
}
template <class T> WEFT_FUNCTION T shuffle(const T& value, int lane, int width) {
    return detail::ShuffleFrom{lane, width}(value);
}

// ---------------------------------------------------------------- reductions

// The combination of the values of `lanes` neighbouring lanes (a power of two), in lane order, in all of them.
template <class Algebra, int lanes> WEFT_FUNCTION typename Algebra::Value reduce_lanes(typename Algebra::Value value) {
    const int lane = threadIdx.x % lanes;
#pragma unroll
    for (int distance = 1; distance < lanes; distance *= 2) {
        const auto other = shuffle_xor(value, distance);
        value = lane & distance ? Algebra::combine(other, value) : Algebra::combine(value, other);
    }
    return value;
}

// Orders the memory accesses of a team: what its threads did before, before what any of them does after.
template <int threads> WEFT_FUNCTION void sync_team() {
    if constexpr (threads <= 32) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

// The combination of the values of a team, in thread order, in all its threads. `scratch` has room for one value a warp;
// it may be used again after the next barrier.
template <class Algebra, int threads>
WEFT_FUNCTION typename Algebra::Value reduce(typename Algebra::Value value, typename Algebra::Value* scratch) {
    if constexpr (threads <= 32) {
        return reduce_lanes<Algebra, threads>(value);
    } else {
        constexpr int warps = threads / 32;
        value = reduce_lanes<Algebra, 32>(value);
        if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
        __syncthreads();
        value = scratch[threadIdx.x % warps];
        return reduce_lanes<Algebra, warps>(value);
    }
}

// The combination of the values of a block's threads that lie one below the other, threadIdx.x % across alike, in the order of
// threads, in all of them. `scratch` has room for `across` values of each warp, or of each `across` threads where these are more;
// it may be used again after the next barrier.
template <class Algebra, int across, int threads>
WEFT_FUNCTION typename Algebra::Value reduce_down(typename Algebra::Value value, typename Algebra::Value* scratch) {
    constexpr int group = across > 32 ? across : 32, groups = threads / group;
    const int lane = threadIdx.x % 32, x = threadIdx.x % across;
#pragma unroll
    for (int distance = across; distance < 32; distance *= 2) {
        const auto other = shuffle_xor(value, distance);
        value = lane & distance ? Algebra::combine(other, value) : Algebra::combine(value, other);
    }
    if constexpr (groups > 1) {
        if (int(threadIdx.x) % group < across) scratch[int(threadIdx.x) / group * across + x] = value;
        __syncthreads();
        value = scratch[x];
#pragma unroll
        for (int k = 1; k < groups; ++k) value = Algebra::combine(value, scratch[k * across + x]);
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
WEFT_FUNCTION Prefix<Algebra> scan_lanes(typename Algebra::Value value) {
    const int lane = threadIdx.x % lanes;
    const int position = backwards ? lanes - 1 - lane : lane;
#pragma unroll
    for (int distance = 1; distance < lanes; distance *= 2) {
        const auto other = backwards ? shuffle_down(value, distance) : shuffle_up(value, distance);
        const auto combined = Algebra::combine(other, value);  // by all lanes: a choice between values, no branch
        value = position >= distance ? combined : value;
    }
    auto before = backwards ? shuffle_down(value, 1) : shuffle_up(value, 1);
    if (position == 0) before = Algebra::identity();
    return {before, shuffle(value, backwards ? 0 : lanes - 1, lanes)};
}

// The same over a team. `scratch` as for reduce.
template <class Algebra, int threads, bool backwards>
WEFT_FUNCTION Prefix<Algebra> scan(typename Algebra::Value value, typename Algebra::Value* scratch) {
    if constexpr (threads <= 32) {
        return scan_lanes<Algebra, threads, backwards>(value);
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

// ---------------------------------------------------------------- in order

// Whether something holds for all threads of a team.
template <int threads> WEFT_FUNCTION bool all_of_team(bool holds) {
    if constexpr (threads <= 32) {
        return __all_sync(0xffffffffu, holds);
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
        ((state = shuffle(state, turn % lanes, lanes)), ...);
        if constexpr (warps > 1) {
            if (k % lanes == lanes - 1) ((state = from_thread(state, turn)), ...);
        }
    }
}

}  // namespace weft
