// What the lanes of one row do together: reductions and scans over a warp or a block, in a fixed order of combination.
//
// A team is the threads of a row: a warp, or all the warps of a block; threadIdx.x counts its threads.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// ---------------------------------------------------------------- algebras

// An algebra is a type with a Value, an identity and `combine(first, second)`, associative; `first` comes earlier.

template <typename T> struct Sum {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(0); }
    static WEFT_FUNCTION T combine(T first, T second) { return T(first + second); }
};
template <typename T> struct Product {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(1); }
    static WEFT_FUNCTION T combine(T first, T second) { return T(first * second); }
};

namespace detail {
template <typename T> WEFT_FUNCTION constexpr T lowest() {
    if constexpr (is_floating<T>) return -T(INFINITY);
    else if constexpr (is_signed<T>) return T(T(1) << (8 * sizeof(T) - 1));
    else return T(0);
}
template <typename T> WEFT_FUNCTION constexpr T highest() {
    if constexpr (is_floating<T>) return T(INFINITY);
    else return T(~lowest<T>());
}
}  // namespace detail

// The names of the operators: max and min drop a NaN (Python's rule, once the start has joined), maximum and minimum keep it.
template <typename T> struct Max {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::lowest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_max(first, second); }
};
template <typename T> struct Min {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::highest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_min(first, second); }
};
template <typename T> struct Maximum {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::lowest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return maximum(first, second); }
};
template <typename T> struct Minimum {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::highest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return minimum(first, second); }
};
template <typename T> struct FMax {
    using Value = T;
    static WEFT_FUNCTION T identity() {
        if constexpr (is_floating<T>) return T(NAN);
        else return detail::lowest<T>();
    }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_max(first, second); }
};
template <typename T> struct FMin {
    using Value = T;
    static WEFT_FUNCTION T identity() {
        if constexpr (is_floating<T>) return T(NAN);
        else return detail::highest<T>();
    }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_min(first, second); }
};
template <typename T> struct And {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(true); }
    static WEFT_FUNCTION T combine(T first, T second) { return first && second; }
};
template <typename T> struct Or {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(false); }
    static WEFT_FUNCTION T combine(T first, T second) { return first || second; }
};

// h -> coefficient * h + addend, rounded once; integers wrap.
template <typename T> struct AffineMap {
    T coefficient;
    T addend;
    WEFT_FUNCTION T operator()(T h) const {
        if constexpr (is_floating<T>) return fma(coefficient, h, addend);
        else return wrapping_add(wrapping_mul(coefficient, h), addend);
    }
};
template <typename T> struct Affine {
    using Value = AffineMap<T>;
    static WEFT_FUNCTION Value identity() { return {T(1), T(0)}; }
    static WEFT_FUNCTION Value combine(const Value& first, const Value& second) {
        if constexpr (is_floating<T>) return {second.coefficient * first.coefficient, second(first.addend)};
        else return {wrapping_mul(second.coefficient, first.coefficient), second(first.addend)};
    }
};

// ---------------------------------------------------------------- shuffles

template <typename T> WEFT_FUNCTION T shuffle_up(T value, int distance) {
    return T(__shfl_up_sync(0xffffffffu, value, distance));
}
template <typename T> WEFT_FUNCTION T shuffle_down(T value, int distance) {
    return T(__shfl_down_sync(0xffffffffu, value, distance));
}
template <typename T> WEFT_FUNCTION T shuffle_xor(T value, int distance) {
    return T(__shfl_xor_sync(0xffffffffu, value, distance));
}
template <typename T> WEFT_FUNCTION T shuffle(T value, int lane, int width) {
    return T(__shfl_sync(0xffffffffu, value, lane, width));
}
template <typename T> WEFT_FUNCTION AffineMap<T> shuffle_up(const AffineMap<T>& map, int distance) {
    return {shuffle_up(map.coefficient, distance), shuffle_up(map.addend, distance)};
}
template <typename T> WEFT_FUNCTION AffineMap<T> shuffle_down(const AffineMap<T>& map, int distance) {
    return {shuffle_down(map.coefficient, distance), shuffle_down(map.addend, distance)};
}
template <typename T> WEFT_FUNCTION AffineMap<T> shuffle_xor(const AffineMap<T>& map, int distance) {
    return {shuffle_xor(map.coefficient, distance), shuffle_xor(map.addend, distance)};
}
template <typename T> WEFT_FUNCTION AffineMap<T> shuffle(const AffineMap<T>& map, int lane, int width) {
    return {shuffle(map.coefficient, lane, width), shuffle(map.addend, lane, width)};
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

}  // namespace weft
