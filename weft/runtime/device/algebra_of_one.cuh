// What iterations do to the values that they carry, so that the effects of any range of them combine into one.
//
// An algebra is a type with a Value, an identity, `combine(first, second)`, associative, where `first` comes earlier, and
// `apply(value, state...)`, which changes a state as the value says. Values of several parts have `each(f)`: f of each part.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// Sums and products of integers wrap.
template <typename T> struct Sum {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(0); }
    static WEFT_FUNCTION T combine(T first, T second) {
        if constexpr (is_floating<T>) return first + second;
        else return wrapping_add(first, second);
    }
    static WEFT_FUNCTION void apply(T value, T& h) { h = combine(h, value); }
};
template <typename T> struct Product {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(1); }
    static WEFT_FUNCTION T combine(T first, T second) {
        if constexpr (is_floating<T>) return first * second;
        else return wrapping_mul(first, second);
    }
    static WEFT_FUNCTION void apply(T value, T& h) { h = combine(h, value); }
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
template <typename T> WEFT_FUNCTION constexpr T largest_finite() { return sizeof(T) == 4 ? T(0x1.fffffep127) : T(0x1.fffffffffffffp1023); }
}  // namespace detail

// The names of the operators: max and min drop a NaN (Python's rule, once the start has joined), maximum and minimum keep it.
// reference: what sums of exponentials are relative to while an extremum has this value; finite, where nothing has come yet.
template <typename T> struct Max {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::lowest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_max(first, second); }
    static WEFT_FUNCTION T reference(T value) { return combine(value, -detail::largest_finite<T>()); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = python_max(h, value); }
};
template <typename T> struct Min {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::highest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_min(first, second); }
    static WEFT_FUNCTION T reference(T value) { return combine(value, detail::largest_finite<T>()); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = python_min(h, value); }
};
template <typename T> struct Maximum {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::lowest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return maximum(first, second); }
    static WEFT_FUNCTION T reference(T value) { return combine(value, -detail::largest_finite<T>()); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = maximum(h, value); }
};
template <typename T> struct Minimum {
    using Value = T;
    static WEFT_FUNCTION T identity() { return detail::highest<T>(); }
    static WEFT_FUNCTION T combine(T first, T second) { return minimum(first, second); }
    static WEFT_FUNCTION T reference(T value) { return combine(value, detail::largest_finite<T>()); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = minimum(h, value); }
};
template <typename T> struct FMax {
    using Value = T;
    static WEFT_FUNCTION T identity() {
        if constexpr (is_floating<T>) return T(NAN);
        else return detail::lowest<T>();
    }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_max(first, second); }
    static WEFT_FUNCTION T reference(T value) { return combine(value, -detail::largest_finite<T>()); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = drop_nan_max(h, value); }
};
template <typename T> struct FMin {
    using Value = T;
    static WEFT_FUNCTION T identity() {
        if constexpr (is_floating<T>) return T(NAN);
        else return detail::highest<T>();
    }
    static WEFT_FUNCTION T combine(T first, T second) { return drop_nan_min(first, second); }
    static WEFT_FUNCTION T reference(T value) { return combine(value, detail::largest_finite<T>()); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = drop_nan_min(h, value); }
};
template <typename T> struct And {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(true); }
    static WEFT_FUNCTION T combine(T first, T second) { return first && second; }
    static WEFT_FUNCTION void apply(T value, T& h) { h = h && value; }
};
template <typename T> struct Or {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(false); }
    static WEFT_FUNCTION T combine(T first, T second) { return first || second; }
    static WEFT_FUNCTION void apply(T value, T& h) { h = h || value; }
};

template <typename T> struct BitAnd {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(2) == T(1) ? T(true) : T(~T(0)); }  // of a bool, of others
    static WEFT_FUNCTION T combine(T first, T second) { return T(first & second); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = T(h & value); }
};
template <typename T> struct BitOr {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(0); }
    static WEFT_FUNCTION T combine(T first, T second) { return T(first | second); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = T(h | value); }
};
template <typename T> struct BitXor {
    using Value = T;
    static WEFT_FUNCTION T identity() { return T(0); }
    static WEFT_FUNCTION T combine(T first, T second) { return T(first ^ second); }
    static WEFT_FUNCTION void apply(T value, T& h) { h = T(h ^ value); }
};

// h -> coefficient * h + addend, rounded once; integers wrap.
template <typename T> struct AffineMap {
    static constexpr bool compound = true;
    T coefficient;
    T addend;
    template <class F> WEFT_FUNCTION AffineMap each(F f) const { return {f(coefficient), f(addend)}; }
    WEFT_FUNCTION T operator()(T h) const {
        if constexpr (is_floating<T>) return fma(coefficient, h, addend);
        else return wrapping_add(wrapping_mul(coefficient, h), addend);
    }
};
template <typename T> struct Affine {
    using Value = AffineMap<T>;
    static WEFT_FUNCTION Value identity() { return {T(1), T(0)}; }
    static WEFT_FUNCTION Value step(T coefficient, T addend) { return {coefficient, addend}; }
    static WEFT_FUNCTION Value combine(const Value& first, const Value& second) {
        if constexpr (is_floating<T>) return {second.coefficient * first.coefficient, second(first.addend)};
        else return {wrapping_mul(second.coefficient, first.coefficient), second(first.addend)};
    }
    static WEFT_FUNCTION void apply(const Value& map, T& h) { h = map(h); }
};

}  // namespace weft
