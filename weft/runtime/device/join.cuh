// Joins of values to elements of memory that other threads join values to meanwhile. The order does not show: each algebra here
// gives the same bits in any; so do sums of floats where all add the same number, which is no less than 1.
#pragma once
#include "weft/algebra.cuh"
#include "weft/atomic.cuh"

namespace weft {

namespace detail {

template <int size> struct element_bits;
template <> struct element_bits<1> { using type = uint8_t; };
template <> struct element_bits<2> { using type = uint16_t; };
template <> struct element_bits<4> { using type = uint32_t; };
template <> struct element_bits<8> { using type = uint64_t; };

WEFT_FUNCTION bool below_zero(float value) { return int32_t(bits_of(value)) < 0; }  // -0 too
WEFT_FUNCTION bool below_zero(double value) { return __double_as_longlong(value) < 0; }

// What an algebra makes of an element and a value. Of two zeros a maximum is 0, a minimum -0, whichever comes first, and a
// NaN that wins is always the same one.
template <class A> struct Joined {
    template <typename T> static WEFT_FUNCTION T of(T h, T value) {
        A::apply(value, h);
        return h;
    }
};
#define WEFT_EXTREMUM(name, better, tie, nan)                                                 \
    template <typename T> struct Joined<name<T>> {                                            \
        static WEFT_FUNCTION T of(T h, T value) {                                             \
            if constexpr (is_floating<T>) {                                                   \
                if (h != h || value != value) return nan;                                     \
                return value better h || (value == h && below_zero(tie)) ? value : h;         \
            } else {                                                                          \
                return value better h ? value : h;                                            \
            }                                                                                 \
        }                                                                                     \
    };
WEFT_EXTREMUM(Max, >, h, h)
WEFT_EXTREMUM(Min, <, value, h)
WEFT_EXTREMUM(Maximum, >, h, h != h ? h : T(NAN))
WEFT_EXTREMUM(Minimum, <, value, h != h ? h : T(NAN))
WEFT_EXTREMUM(FMax, >, h, h != h && value == value ? value : h)
WEFT_EXTREMUM(FMin, <, value, h != h && value == value ? value : h)
#undef WEFT_EXTREMUM

template <class A, typename T> WEFT_FUNCTION void join_by_exchange(T* address, typename A::Value value) {
    using Register = typename A::Value;
    using Bits = typename element_bits<sizeof(T)>::type;
    Bits* const place = reinterpret_cast<Bits*>(address);
    union { T element; Bits bits; } made;
    Bits seen = load_volatile(place);
    while (true) {
        made.bits = seen;
        made.element = T(Joined<A>::of(Register(made.element), value));
        const Bits before =
            made.bits == seen ? seen : atomic_compare_exchange_relaxed<Scope::gpu>(place, seen, made.bits);
        if (before == seen) return;
        seen = before;
    }
}

// Those that the hardware has an atomic of: of words of 4 and 8 bytes.
template <class A, typename T> struct Native { static constexpr bool there = false; };
template <> struct Native<Sum<float>, float> {
    static constexpr bool there = true;
    static WEFT_FUNCTION void join(float* address, float value) { atomicAdd(address, value); }
};
template <> struct Native<Sum<double>, double> {
    static constexpr bool there = true;
    static WEFT_FUNCTION void join(double* address, double value) { atomicAdd(address, value); }
};
#define WEFT_NATIVE(name, operation, as)                                                                         \
    template <typename T> struct Native<name<T>, T> {                                                            \
        static constexpr bool there = !is_floating<T> && sizeof(T) >= 4;                                         \
        static WEFT_FUNCTION void join(T* address, T value) { operation(reinterpret_cast<as*>(address), as(value)); } \
    };
WEFT_NATIVE(Sum, atomicAdd, unsigned_word<T>)
WEFT_NATIVE(Max, atomicMax, T)
WEFT_NATIVE(Min, atomicMin, T)
WEFT_NATIVE(Maximum, atomicMax, T)
WEFT_NATIVE(Minimum, atomicMin, T)
WEFT_NATIVE(BitAnd, atomicAnd, unsigned_word<T>)
WEFT_NATIVE(BitOr, atomicOr, unsigned_word<T>)
WEFT_NATIVE(BitXor, atomicXor, unsigned_word<T>)
#undef WEFT_NATIVE

}  // namespace detail

template <class A> WEFT_FUNCTION typename A::Value joined(typename A::Value h, typename A::Value value) {
    return detail::Joined<A>::of(h, value);
}

// An element becomes what the algebra makes of it and a value, at once for all other threads.
template <class A, typename T> WEFT_FUNCTION void join(T* address, typename A::Value value) {
    if constexpr (detail::Native<A, T>::there) detail::Native<A, T>::join(address, value);
    else detail::join_by_exchange<A>(address, value);
}

}  // namespace weft
