// Algebras of several values, choices and restarts, beside those of one value.
#pragma once
#include "weft/algebra_of_one.cuh"

namespace weft {

namespace detail {
// sum + a * b; integers wrap.
template <typename T> WEFT_FUNCTION T multiply_add(T a, T b, T sum) {
    if constexpr (is_floating<T>) return fma(a, b, sum);
    else return wrapping_add(wrapping_mul(a, b), sum);
}
}  // namespace detail

// h[i] -> the sum of coefficient[i][j] * h[j] over the j that are present, + addend[i]. What is absent is not multiplied by 0:
// it may be infinite.
template <typename T, int n> struct LinearMap {
    static constexpr bool compound = true;
    T coefficient[n][n];
    T addend[n];
    uint32_t present;  // bit i * n + j
    WEFT_FUNCTION bool has(int i, int j) const { return present >> (i * n + j) & 1; }
    template <class F> WEFT_FUNCTION LinearMap each(F f) const {
        LinearMap out;
#pragma unroll
        for (int i = 0; i < n; ++i) {
#pragma unroll
            for (int j = 0; j < n; ++j) out.coefficient[i][j] = f(coefficient[i][j]);
            out.addend[i] = f(addend[i]);
        }
        out.present = f(present);
        return out;
    }
    // row i of the map, of a vector
    WEFT_FUNCTION T row(int i, const T (&h)[n], T sum) const {
#pragma unroll
        for (int j = 0; j < n; ++j) sum = has(i, j) ? detail::multiply_add(coefficient[i][j], h[j], sum) : sum;
        return sum;
    }
};
template <typename T, int n> struct Linear {
    using Value = LinearMap<T, n>;
    static WEFT_FUNCTION Value identity() {
        Value map = {};
#pragma unroll
        for (int i = 0; i < n; ++i) {
            map.coefficient[i][i] = T(1);
            map.present |= 1u << (i * n + i);
        }
        return map;
    }
    // coefficients (n * n), whether each is present (n * n), addends (n)
    template <typename... P> static WEFT_FUNCTION Value step(P... parts) {
        static_assert(sizeof...(P) == 2 * n * n + n);
        const T part[] = {T(parts)...};
        Value map;
        map.present = 0;
#pragma unroll
        for (int k = 0; k < n * n; ++k) {
            map.coefficient[k / n][k % n] = part[k];
            map.present |= part[n * n + k] != T(0) ? 1u << k : 0u;
        }
#pragma unroll
        for (int i = 0; i < n; ++i) map.addend[i] = part[2 * n * n + i];
        return map;
    }
    static WEFT_FUNCTION Value combine(const Value& first, const Value& second) {
        constexpr uint32_t all = (1ull << (n * n)) - 1;
        Value map;
        if ((first.present & second.present) == all) {  // as runs of a few iterations are
            map.present = all;
#pragma unroll
            for (int i = 0; i < n; ++i) {
#pragma unroll
                for (int j = 0; j < n; ++j) {
                    T sum = T(0);
#pragma unroll
                    for (int k = 0; k < n; ++k) {
                        sum = detail::multiply_add(second.coefficient[i][k], first.coefficient[k][j], sum);
                    }
                    map.coefficient[i][j] = sum;
                }
                map.addend[i] = second.addend[i];
#pragma unroll
                for (int k = 0; k < n; ++k) {
                    map.addend[i] = detail::multiply_add(second.coefficient[i][k], first.addend[k], map.addend[i]);
                }
            }
            return map;
        }
        map.present = 0;
#pragma unroll
        for (int i = 0; i < n; ++i) {
#pragma unroll
            for (int j = 0; j < n; ++j) {
                T sum = T(0);
                bool any = false;
#pragma unroll
                for (int k = 0; k < n; ++k) {
                    const bool both = second.has(i, k) && first.has(k, j);
                    sum = both ? detail::multiply_add(second.coefficient[i][k], first.coefficient[k][j], sum) : sum;
                    any = any || both;
                }
                map.coefficient[i][j] = sum;
                map.present |= any ? 1u << (i * n + j) : 0u;
            }
            map.addend[i] = second.row(i, first.addend, second.addend[i]);
        }
        return map;
    }
    template <typename... H> static WEFT_FUNCTION void apply(const Value& map, H&... state) {
        const T before[] = {state...};
        int i = 0;
        ((state = map.row(i, before, map.addend[i]), ++i), ...);
    }
};

// h -> value if given, else h.
template <typename T> struct Select {
    struct Value {
        static constexpr bool compound = true;
        T value;
        bool given;
        template <class F> WEFT_FUNCTION Value each(F f) const { return {f(value), f(given)}; }
    };
    static WEFT_FUNCTION Value identity() { return {T(0), false}; }
    static WEFT_FUNCTION Value step(bool given, T value) { return {value, given}; }
    static WEFT_FUNCTION Value combine(const Value& first, const Value& second) {
        return {second.given ? second.value : first.value, first.given || second.given};
    }
    static WEFT_FUNCTION void apply(const Value& last, T& h) { h = last.given ? last.value : h; }
};

// Another algebra of one value, whose state starts anew in some iterations: what came before is then not looked at.
template <class Algebra, typename T> struct Segmented {
    struct Value {
        static constexpr bool compound = true;
        typename Algebra::Value rest;  // what has happened since the start, or at all
        T state;                       // there
        bool starts;
        template <class F> WEFT_FUNCTION Value each(F f) const {
            return {f(rest), f(state), f(starts)};
        }
    };
    static WEFT_FUNCTION Value identity() { return {Algebra::identity(), T(0), false}; }
    template <typename... P> static WEFT_FUNCTION Value step(bool starts, T state, P... parts) {
        if (starts) return {Algebra::identity(), state, true};
        if constexpr (sizeof...(P) == 1) return {parts..., state, false};
        else return {Algebra::step(parts...), state, false};
    }
    static WEFT_FUNCTION Value combine(const Value& first, const Value& second) {
        if (second.starts) return second;
        return {Algebra::combine(first.rest, second.rest), first.state, first.starts};
    }
    static WEFT_FUNCTION void apply(const Value& value, T& h) {
        h = value.starts ? value.state : h;
        Algebra::apply(value.rest, h);
    }
};

// h -> min(max(h + shift, low), high), low <= high; Python's min and max, so that a NaN stays. Integers have no shift.
template <typename T> struct Clamp {
    struct Value {
        static constexpr bool compound = true;
        T shift, low, high;
        template <class F> WEFT_FUNCTION Value each(F f) const { return {f(shift), f(low), f(high)}; }
        WEFT_FUNCTION T operator()(T h) const { return python_min(python_max(T(h + shift), low), high); }
    };
    static WEFT_FUNCTION Value identity() { return {T(0), detail::lowest<T>(), detail::highest<T>()}; }
    static WEFT_FUNCTION Value step(T shift, T low, T high) { return {shift, low, high}; }
    static WEFT_FUNCTION Value combine(const Value& first, const Value& second) {
        if constexpr (is_floating<T>) {
            const T shift = first.shift + second.shift;
            if (is_nan(shift) && !is_nan(first.shift) && !is_nan(second.shift)) {
                // an infinite shift and its opposite: the first has brought every state to a bound of its own
                const T state = second(first.shift > T(0) ? first.high : first.low);
                return {is_nan(state) ? state : T(0), state, state};
            }
            return {shift, second(first.low), second(first.high)};
        } else {
            return {T(0), second(first.low), second(first.high)};
        }
    }
    static WEFT_FUNCTION void apply(const Value& value, T& h) { h = value(h); }
};

// ---------------------------------------------------------------- extrema with what goes with them

namespace detail {
template <typename... P> struct Others {
    template <class F> WEFT_FUNCTION Others each(F) const { return {}; }
    WEFT_FUNCTION void store() const {}
};
template <typename H, typename... P> struct Others<H, P...> {
    H first;
    Others<P...> rest;
    template <class F> WEFT_FUNCTION Others each(F f) const { return {f(first), rest.each(f)}; }
    template <typename... R> WEFT_FUNCTION void store(H& own, R&... others) const {
        own = first;
        rest.store(others...);
    }
};
WEFT_FUNCTION Others<> others() { return {}; }
template <typename H, typename... P> WEFT_FUNCTION Others<H, P...> others(H first, P... rest) { return {first, others(rest...)}; }
}  // namespace detail

// (m, others...) -> the largest value so far and what goes with it (the smallest, if not `largest`). Of equal ones that of the
// least column wins, or, if `last`, of the greatest; where the state itself is as large, it wins unless `ties`. A NaN never wins.
template <bool largest, bool last, bool ties, typename Index, typename T, typename... P> struct Extremum {
    struct Value {
        static constexpr bool compound = true;
        T value;
        Index column;  // -1: there is none
        detail::Others<P...> others;
        template <class F> WEFT_FUNCTION Value each(F f) const { return {f(value), f(column), others.each(f)}; }
    };
    static WEFT_FUNCTION bool better(T a, T b) { return largest ? a > b : a < b; }
    static WEFT_FUNCTION Value identity() { return {largest ? detail::lowest<T>() : detail::highest<T>(), Index(-1), {}}; }
    static WEFT_FUNCTION Value step(Index column, T value, bool valid, P... others) {
        return next(identity(), column, value, valid, others...);
    }
    // With one more column, the greatest so far.
    static WEFT_FUNCTION Value next(const Value& before, Index column, T value, bool valid, P... others) {
        const bool wins = valid && (better(value, before.value) || (last && value == before.value));
        return wins ? Value{value, column, detail::others(others...)} : before;
    }
    static WEFT_FUNCTION Value combine(const Value& first, const Value& second) {
        // that there is none loses either way: -1 is the least column, and the greatest without its sign
        const bool nearer = last ? second.column > first.column : uint64_t(second.column) < uint64_t(first.column);
        return better(second.value, first.value) || (second.value == first.value && nearer) ? second : first;
    }
    // Whether the state changes.
    template <typename... H> static WEFT_FUNCTION bool apply(const Value& found, T& extremum, H&... others) {
        const bool wins = found.column >= 0 && (better(found.value, extremum) || (ties && found.value == extremum));
        if (wins) {
            extremum = found.value;
            found.others.store(others...);
        }
        return wins;
    }
};

}  // namespace weft
