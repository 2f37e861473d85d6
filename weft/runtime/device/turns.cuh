// Turns of a tile of rows in which some row and some column have a condition, as intervals of what it compares tell.
#pragma once
#include "weft/memory.cuh"
#include "weft/team.cuh"

namespace weft {

// The first row of a tile that a thread has, counted anew each time: it takes no register.
struct OwnRow {
    WEFT_FUNCTION operator int32_t() const {
        const int32_t thread = opaque(int32_t(threadIdx.x));
        return thread / 32 * 16 + thread % 32 / 4;
    }
};

// From the least to the largest of some numbers, NaN aside.
template <typename T> struct Interval {
    T least = Min<T>::identity();
    T most = Max<T>::identity();
    bool ordered = true;  // none of them is NaN

    WEFT_FUNCTION void take(T value) {
        if (is_nan(value)) {
            ordered = false;
        } else {
            least = minimum(least, value);
            most = maximum(most, value);
        }
    }
};

template <typename T> WEFT_FUNCTION Interval<T> interval_of(T value) {
    Interval<T> found;
    found.take(value);
    return found;
}

// Of up to so many rows, from the first to the last. All threads of a warp ask.
template <typename T, int rows, class Value>
WEFT_FUNCTION Interval<T> interval_of_rows(int64_t first, int64_t last, const Value& value) {
    Interval<T> found;
#pragma unroll
    for (int k = 0; k < rows; k += 32) found.take(value(minimum<int64_t>(first + k + threadIdx.x % 32, last)));
    return {reduce_lanes<Min<T>, 32>(found.least), reduce_lanes<Max<T>, 32>(found.most),
            __all_sync(0xffffffffu, found.ordered) != 0};
}

// Whether all of up to so many rows say so.
template <int rows, class Value> WEFT_FUNCTION bool all_of_rows(int64_t first, int64_t last, const Value& value) {
    bool all = true;
#pragma unroll
    for (int k = 0; k < rows; k += 32) all = value(minimum<int64_t>(first + k + threadIdx.x % 32, last)) && all;
    return __all_sync(0xffffffffu, all) != 0;
}

template <typename T> WEFT_FUNCTION bool is_number(T value) { return value - value == T(0); }

// Whether a number of an interval may be in such a relation to one of another, and whether each is to each.
template <typename T> WEFT_FUNCTION bool may_equal(const Interval<T>& a, const Interval<T>& b) {
    return a.least <= b.most && b.least <= a.most;
}
template <typename T> WEFT_FUNCTION bool must_equal(const Interval<T>& a, const Interval<T>& b) {
    return a.ordered && b.ordered && a.least == b.most && b.least == a.most;
}
template <typename T> WEFT_FUNCTION bool may_be_below(const Interval<T>& a, const Interval<T>& b) { return a.least < b.most; }
template <typename T> WEFT_FUNCTION bool must_be_below(const Interval<T>& a, const Interval<T>& b) {
    return a.ordered && b.ordered && a.most < b.least;
}
template <typename T> WEFT_FUNCTION bool may_reach(const Interval<T>& a, const Interval<T>& b) { return a.least <= b.most; }
template <typename T> WEFT_FUNCTION bool must_reach(const Interval<T>& a, const Interval<T>& b) {
    return a.ordered && b.ordered && a.most <= b.least;
}

// What is told of a turn: some pair has the condition, all have it, what sums are multiplied by is finite.
enum : uint32_t { some_pair = 1, all_pairs = 2, all_finite_there = 4 };

// How many turns are left to others before those of a warpgroup, how many it has, which is the first, and how many follow.
struct TurnsOfGroup {
    int32_t before;
    int32_t own;
    int32_t after;
    int32_t first;
};

// The same of some warpgroups, each of which has those from one to before another; the first that any has. All threads of a
// warp ask.
template <int groups, class Ask>
WEFT_FUNCTION int32_t count_turns(
    TurnsOfGroup (&found)[groups], const int32_t (&from)[groups], const int32_t (&to)[groups], int32_t first, int32_t stop,
    const Ask& ask) {
#pragma unroll
    for (int g = 0; g < groups; ++g) found[g] = {0, 0, 0, stop};
    int32_t begin = stop;
    constexpr int together = 4;  // asked for at once: memory takes a while to tell
    for (int32_t run = first; run < stop; run += 32 * together) {
        uint32_t told[together];
#pragma unroll
        for (int k = 0; k < together; ++k) told[k] = ask(minimum<int32_t>(run + k * 32 + threadIdx.x % 32, stop - 1));
#pragma unroll
        for (int k = 0; k < together; ++k) {
            const int32_t turn = run + k * 32 + threadIdx.x % 32;
            const bool some = turn < stop && (told[k] & some_pair);
            const uint32_t all = __ballot_sync(0xffffffffu, some);
            if (all && begin == stop) begin = run + k * 32 + __ffs(int32_t(all)) - 1;
#pragma unroll
            for (int g = 0; g < groups; ++g) {
                const uint32_t before = __ballot_sync(0xffffffffu, some && turn < from[g]);
                const uint32_t own = __ballot_sync(0xffffffffu, some && turn >= from[g] && turn < to[g]);
                if (own && found[g].own == 0) found[g].first = run + k * 32 + __ffs(int32_t(own)) - 1;
                found[g].before += __popc(before);
                found[g].own += __popc(own);
                found[g].after += __popc(all & ~before & ~own);
            }
        }
    }
    return begin;
}

// These turns, one after another: all threads of a warp ask for 32 at once.
template <class Ask> struct Turns {
    const Ask& ask;
    int32_t stop;
    int32_t count;  // how many are left
    int32_t run;
    uint32_t some;
    uint32_t all;
    uint32_t finite;

    WEFT_FUNCTION Turns(const Ask& ask, int32_t first, int32_t stop, int32_t count)
        : ask(ask), stop(stop), count(count), run(first - 32), some(0), all(0), finite(0) {}

    // Four times the next one, and in the last bits whether all its pairs have the condition, and whether all is finite; four
    // times `stop` after the last one.
    WEFT_FUNCTION int32_t next() {
        if (count-- == 0) return 4 * stop;
        while (some == 0) {
            run += 32;
            const int32_t turn = run + threadIdx.x % 32;
            const uint32_t told = turn < stop ? ask(turn) : 0;
            some = __ballot_sync(0xffffffffu, (told & some_pair) != 0);
            all = __ballot_sync(0xffffffffu, (told & all_pairs) != 0);
            finite = __ballot_sync(0xffffffffu, (told & all_finite_there) != 0);
        }
        const int32_t k = __ffs(int32_t(some)) - 1;
        some &= some - 1;
        return (run + k) * 4 + (all >> k & 1) + (finite >> k & 1) * 2;
    }
};

}  // namespace weft
