// Scalar functions of generated code: one meaning on the host (C++17) and on the device (NVRTC, no headers needed).
//
// Arithmetic runs in register types (bool, integers, float, double). float16, bfloat16, floats of 8 bits and boolean are types of
// memory: they convert to their register type explicitly, `float(x[i])`, and back by assignment, `y[i] = value`, which rounds to
// nearest even.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WEFT_ON_DEVICE 1
#define WEFT_FUNCTION __device__ __forceinline__
#define WEFT_LONG_FUNCTION __device__ __noinline__
#else
#define WEFT_ON_DEVICE 0
#define WEFT_FUNCTION inline
#define WEFT_LONG_FUNCTION inline
#if defined(__CUDA_ARCH__)
#define WEFT_SIMULATED 1  // on the host in the device's stead: with its bits, where the host's own would be others
#endif
#endif

#define WEFT_INLINE __attribute__((always_inline))  // of a lambda

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fc00000)
#endif
#else
#include <cmath>
#include <cstdint>
#include <cstring>
#endif

namespace weft {

// ---------------------------------------------------------------- types

namespace detail {

template <class T> struct kind { static constexpr bool floating = false; };
template <> struct kind<float> { static constexpr bool floating = true; };
template <> struct kind<double> { static constexpr bool floating = true; };

template <int size> struct word;
template <> struct word<1> { using type = uint32_t; };  // at least 32 bits: narrower operands would promote to int
template <> struct word<2> { using type = uint32_t; };
template <> struct word<4> { using type = uint32_t; };
template <> struct word<8> { using type = uint64_t; };

template <class T> constexpr bool is_signed = T(-1) < T(0);

}  // namespace detail

template <class T> inline constexpr bool is_floating = detail::kind<T>::floating;
template <class T> using unsigned_word = typename detail::word<sizeof(T)>::type;

WEFT_FUNCTION uint32_t bits_of(float value) {
#if WEFT_ON_DEVICE
    return __float_as_uint(value);
#else
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

WEFT_FUNCTION float float_of(uint32_t bits) {
#if WEFT_ON_DEVICE
    return __uint_as_float(bits);
#else
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

// ---------------------------------------------------------------- types of memory

// The host conversions select instead of branching, so that a compiler can vectorise loops over them.

// Two numbers at a time are converted by the pipe of arithmetic, one alone by that of estimates, at a quarter of its speed: so one
// has a 0 for its neighbour.
WEFT_FUNCTION uint16_t float16_bits(float value) {
#if WEFT_ON_DEVICE
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(0.0f), "f"(value));
    return uint16_t(word);
#else
    const uint32_t bits = bits_of(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t odd = (magnitude >> 13) & 1u;
    uint32_t half = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;  // rebias the exponent, round the mantissa
    // below 2^-14 the unit is 2^-24, that of floats from 0.5 to 1: the addition rounds
    const uint32_t subnormal = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
    half = magnitude < 0x38800000u ? subnormal : half;
    half = magnitude >= 0x477ff000u ? 0x7c00u : half;  // 65520 and above round to infinity
#if defined(WEFT_SIMULATED)
    if (magnitude > 0x7f800000u) return 0x7fff;  // the device's only NaN
#endif
    half = magnitude > 0x7f800000u ? 0x7e00u : half;
    return uint16_t(half | ((bits >> 16) & 0x8000u));
#endif
}

WEFT_FUNCTION float float_of_float16(uint16_t bits) {
#if WEFT_ON_DEVICE
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#else
    const uint32_t shifted = uint32_t(bits & 0x7fffu) << 13;
    const uint32_t finite = bits_of(float_of(shifted) * 0x1p112f);  // rebias the exponent; subnormals become normal
    const uint32_t magnitude = shifted >= 0x0f800000u ? shifted | 0x7f800000u : finite;
    return float_of(magnitude | (uint32_t(bits & 0x8000u) << 16));
#endif
}

WEFT_FUNCTION uint16_t bfloat16_bits(float value) {
#if WEFT_ON_DEVICE
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(0.0f), "f"(value));
    return uint16_t(word);
#else
    const uint32_t bits = bits_of(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
#if defined(WEFT_SIMULATED)
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
#endif
    return uint16_t((bits & 0x7fffffffu) > 0x7f800000u ? (bits >> 16) | 0x40u : rounded);
#endif
}

// Floats of 8 bits, `digits` of them behind the point: 3 (float8_e4m3fn, which has no infinity) or 2 (float8_e5m2). saturated:
// what is too large for the former becomes its largest number, else NaN.
template <int digits, bool saturated = false> WEFT_FUNCTION uint8_t float8_bits(float value) {
    const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
#if WEFT_ON_DEVICE && __CUDA_ARCH__ >= 890
    uint16_t pair;  // saturated, whatever is asked for
    if constexpr (digits == 3) asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    else asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
    const uint32_t sign = bits >> 24 & 0x80u;
    if constexpr (digits == 2) return uint8_t(magnitude >= 0x47700000u && magnitude <= 0x7f800000u ? 0x7cu | sign : pair);
    return uint8_t(!saturated && magnitude > 0x43e80000u ? 0x7fu | sign : pair);
#else
    constexpr int cut = 23 - digits, bias = digits == 3 ? 7 : 15;
    constexpr uint32_t least = uint32_t(128 - bias) << 23, unit = uint32_t(128 - bias + cut) << 23;
    const uint32_t rounded = (magnitude - (uint32_t(127 - bias) << 23) + ((1u << (cut - 1)) - 1) + (magnitude >> cut & 1u)) >> cut;
    // below the least normal number the unit is that of floats around `unit`: the addition rounds
    const uint32_t subnormal = bits_of(float_of(magnitude) + float_of(unit)) - unit;
    uint32_t found = magnitude < least ? subnormal : rounded;
    constexpr uint32_t most = digits == 3 ? (saturated ? 0x7eu : 0x7fu) : 0x7cu;
    found = found > most ? most : found;
    found = magnitude > 0x7f800000u ? 0x7fu : found;
    return uint8_t(found | (bits >> 24 & 0x80u));
#endif
}

WEFT_FUNCTION float float_of_float8_e4m3fn(uint8_t bits) {
#if WEFT_ON_DEVICE && __CUDA_ARCH__ >= 890
    uint32_t pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(uint16_t(bits)));
    return float_of_float16(uint16_t(pair));
#else
    const uint32_t magnitude = bits & 0x7fu, sign = uint32_t(bits & 0x80u) << 24;
    const uint32_t finite = bits_of(float_of(magnitude << 20) * 0x1p120f);  // rebias the exponent; subnormals become normal
    return float_of((magnitude == 0x7fu ? 0x7fc00000u : finite) | sign);
#endif
}

// What is read and written of an element is an integer, not the member of a struct: of members in structs some stride apart
// g++ 12 (-O3) assumes that the structs are one or never meet, and merges iterations that must not be.
template <class T, class S> WEFT_FUNCTION T& integer_of(S& element) { return reinterpret_cast<T&>(element); }

struct float16 {
    uint16_t bits;
    float16() = default;
    WEFT_FUNCTION explicit float16(float value) : bits(float16_bits(value)) {}
    WEFT_FUNCTION float16& operator=(float value) {
        integer_of<uint16_t>(*this) = float16_bits(value);
        return *this;
    }
    WEFT_FUNCTION explicit operator float() const { return float_of_float16(integer_of<const uint16_t>(*this)); }
};

struct bfloat16 {
    uint16_t bits;
    bfloat16() = default;
    WEFT_FUNCTION explicit bfloat16(float value) : bits(bfloat16_bits(value)) {}
    WEFT_FUNCTION bfloat16& operator=(float value) {
        integer_of<uint16_t>(*this) = bfloat16_bits(value);
        return *this;
    }
    WEFT_FUNCTION explicit operator float() const {
        return float_of(uint32_t(integer_of<const uint16_t>(*this)) << 16);
    }
};

template <bool saturated> struct Float8E4m3 {
    uint8_t bits;
    Float8E4m3() = default;
    WEFT_FUNCTION explicit Float8E4m3(float value) : bits(float8_bits<3, saturated>(value)) {}
    WEFT_FUNCTION Float8E4m3& operator=(float value) {
        integer_of<uint8_t>(*this) = float8_bits<3, saturated>(value);
        return *this;
    }
    WEFT_FUNCTION explicit operator float() const { return float_of_float8_e4m3fn(integer_of<const uint8_t>(*this)); }
};
using float8_e4m3fn = Float8E4m3<false>;
using float8_e4m3fn_saturated = Float8E4m3<true>;

struct float8_e5m2 {
    uint8_t bits;
    float8_e5m2() = default;
    WEFT_FUNCTION explicit float8_e5m2(float value) : bits(float8_bits<2>(value)) {}
    WEFT_FUNCTION float8_e5m2& operator=(float value) {
        integer_of<uint8_t>(*this) = float8_bits<2>(value);
        return *this;
    }
    WEFT_FUNCTION explicit operator float() const { return float_of_float16(uint16_t(integer_of<const uint8_t>(*this) << 8)); }
};

// A byte of a bool tensor: any value but 0 is true.
struct boolean {
    uint8_t bits;
    boolean() = default;
    WEFT_FUNCTION explicit boolean(bool value) : bits(value) {}
    WEFT_FUNCTION boolean& operator=(bool value) {
        integer_of<uint8_t>(*this) = value;
        return *this;
    }
    WEFT_FUNCTION explicit operator bool() const { return integer_of<const uint8_t>(*this) != 0; }
};

// The bits of a half element in memory, which is moved without being converted: unlike whole structs, they are vectorised.
WEFT_FUNCTION uint16_t& bits(float16& element) { return integer_of<uint16_t>(element); }
WEFT_FUNCTION uint16_t& bits(bfloat16& element) { return integer_of<uint16_t>(element); }
WEFT_FUNCTION const uint16_t& bits(const float16& element) { return integer_of<const uint16_t>(element); }
WEFT_FUNCTION const uint16_t& bits(const bfloat16& element) { return integer_of<const uint16_t>(element); }

WEFT_FUNCTION float round_float16(float value) { return float(float16(value)); }
WEFT_FUNCTION float round_bfloat16(float value) { return float(bfloat16(value)); }
WEFT_FUNCTION float round_float8_e4m3fn(float value) { return float(float8_e4m3fn(value)); }
WEFT_FUNCTION float round_float8_e4m3fn_saturated(float value) { return float(float8_e4m3fn_saturated(value)); }
WEFT_FUNCTION float round_float8_e5m2(float value) { return float(float8_e5m2(value)); }

// ---------------------------------------------------------------- quotients of places

// place / size, of places from 0 to below 2^22: what is half a step above a place is as far from a whole number of sizes as the
// roundings, of 2^-23 of it in all, do not go.
struct Quotient {
    float inverse;
    WEFT_FUNCTION explicit Quotient(int64_t size) : inverse(1.0f / float(size)) {}
    WEFT_FUNCTION int32_t operator()(int32_t place) const { return int32_t((float(place) + 0.5f) * inverse); }
};

// ---------------------------------------------------------------- integers that wrap

template <class T> WEFT_FUNCTION T wrapping_add(T a, T b) {
    return T(unsigned_word<T>(a) + unsigned_word<T>(b));
}
template <class T> WEFT_FUNCTION T wrapping_sub(T a, T b) {
    return T(unsigned_word<T>(a) - unsigned_word<T>(b));
}
template <class T> WEFT_FUNCTION T wrapping_mul(T a, T b) {
    return T(unsigned_word<T>(a) * unsigned_word<T>(b));
}
template <class T> WEFT_FUNCTION T wrapping_neg(T a) { return T(unsigned_word<T>(0) - unsigned_word<T>(a)); }

template <class T> WEFT_FUNCTION T bit_not(T a) { return T(~a); }
WEFT_FUNCTION bool bit_not(bool a) { return !a; }

// A shift by the width or more, or by a negative amount, gives 0, or -1 for a negative number shifted right: as PyTorch's.
template <class T> WEFT_FUNCTION T shift_left(T a, T b) {
    return b >= T(0) && uint64_t(b) < 8 * sizeof(T) ? T(unsigned_word<T>(a) << b) : T(0);
}
template <class T> WEFT_FUNCTION T shift_right(T a, T b) {
    constexpr int last = 8 * int(sizeof(T)) - 1;
    if (b < T(0) || uint64_t(b) > uint64_t(last)) return detail::is_signed<T> ? T(a >> last) : T(0);
    return T(a >> b);
}
WEFT_FUNCTION bool shift_left(bool a, bool) { return a; }
WEFT_FUNCTION bool shift_right(bool a, bool b) { return a && !b; }

// ---------------------------------------------------------------- multiply-adds

// a * b + c, rounded once. Nothing else is: no compiler contracts generated code for the device.
WEFT_FUNCTION float fma(float a, float b, float c) {
#if WEFT_ON_DEVICE
    float result;  // by its instruction: ptxas finds fewer registers for what it makes of ::fmaf
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(result) : "f"(a), "f"(b), "f"(c));
    return result;
#else
    return ::fmaf(a, b, c);
#endif
}
WEFT_FUNCTION double fma(double a, double b, double c) { return ::fma(a, b, c); }

namespace detail {

// erf up to 0.92: an odd polynomial.
WEFT_FUNCTION float erf_near(float x) {
    const float square = x * x;
    float p = -0x1.3a8aacp-11f;
    p = fma(p, square, 0x1.47575ap-8f);
    p = fma(p, square, -0x1.b68ff4p-6f);
    p = fma(p, square, 0x1.ce1abap-4f);
    p = fma(p, square, -0x1.8126e8p-2f);
    p = fma(p, square, 0x1.06eba8p-3f);
    return fma(p, x, x);
}

}  // namespace detail

}  // namespace weft

#if !WEFT_ON_DEVICE
#include "weft/elementary.hpp"
#endif

namespace weft {

// ---------------------------------------------------------------- mathematics of the platform

#define WEFT_MATH(name, function)                                             \
    WEFT_FUNCTION float name(float x) { return ::function##f(x); }            \
    WEFT_FUNCTION double name(double x) { return ::function(x); }
#define WEFT_MATH2(name)                                                      \
    WEFT_FUNCTION float name(float a, float b) { return ::name##f(a, b); }    \
    WEFT_FUNCTION double name(double a, double b) { return ::name(a, b); }
#if WEFT_ON_DEVICE
#define WEFT_ELEMENTARY(name) WEFT_MATH(name, name)
#define WEFT_ELEMENTARY2(name) WEFT_MATH2(name)
#else  // of floats by weft/elementary.hpp
#define WEFT_ELEMENTARY(name) WEFT_FUNCTION double name(double x) { return ::name(x); }
#define WEFT_ELEMENTARY2(name) WEFT_FUNCTION double name(double a, double b) { return ::name(a, b); }
#endif

WEFT_ELEMENTARY(exp)
WEFT_ELEMENTARY(exp2)
WEFT_ELEMENTARY(expm1)
WEFT_ELEMENTARY(log)
WEFT_ELEMENTARY(log2)
WEFT_ELEMENTARY(log10)
WEFT_ELEMENTARY(log1p)
WEFT_ELEMENTARY(sin)
WEFT_ELEMENTARY(cos)
WEFT_ELEMENTARY(tan)
WEFT_ELEMENTARY(asin)
WEFT_ELEMENTARY(acos)
WEFT_ELEMENTARY(atan)
WEFT_ELEMENTARY(sinh)
WEFT_ELEMENTARY(cosh)
WEFT_FUNCTION double tanh(double x) { return ::tanh(x); }
WEFT_MATH(asinh, asinh)
WEFT_MATH(acosh, acosh)
WEFT_ELEMENTARY(atanh)
WEFT_ELEMENTARY(erfc)
WEFT_MATH(sqrt, sqrt)
WEFT_MATH(floor, floor)
WEFT_MATH(ceil, ceil)
WEFT_MATH(trunc, trunc)
WEFT_MATH(round, rint)  // halves to even, as in Python
WEFT_MATH2(fmod)
WEFT_ELEMENTARY2(atan2)
WEFT_ELEMENTARY2(hypot)
WEFT_MATH2(copysign)
WEFT_ELEMENTARY2(nextafter)

#undef WEFT_MATH
#undef WEFT_MATH2
#undef WEFT_ELEMENTARY
#undef WEFT_ELEMENTARY2

// Estimates by one instruction, with an error of up to two units of the last place; what would be subnormal is 0.
#ifndef WEFT_ESTIMATE  // on the host a test puts such an error here
#define WEFT_ESTIMATE(value) value
#endif
WEFT_FUNCTION float exp2_estimate(float x) {
#if WEFT_ON_DEVICE
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#elif defined(WEFT_SIMULATED)
    const float result = ::exp2f(x);
    return result < 0x1p-126f ? 0.0f : WEFT_ESTIMATE(result);
#else  // for an x up to 127
    return detail::exp2_within(x < -127.0f ? -127.0f : x);  // the exponent of 0; a NaN stays
#endif
}
WEFT_FUNCTION float reciprocal_estimate(float x) {
#if WEFT_ON_DEVICE
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    const float result = 1.0f / x;
    return result < 0x1p-126f && result > -0x1p-126f ? 0.0f : WEFT_ESTIMATE(result);
#endif
}
namespace detail {

// Within 3 units of the last place, without a branch: an odd polynomial up to 0.6, then 1 - 2 / (1 + e^2|x|).
WEFT_FUNCTION float tanh_estimated(float x) {
    const float size = ::fabsf(x), square = x * x;
    float p = 0x1.ff972ap-7f;
    p = fma(p, square, -0x1.abb7e6p-5f);
    p = fma(p, square, 0x1.10a70ap-3f);
    p = fma(p, square, -0x1.555368p-2f);
    const float near = fma(p * square, size, size);
    const float far = fma(reciprocal_estimate(1.0f + exp2_estimate(size * 0x1.715476p+1f)), -2.0f, 1.0f);
    return ::copysignf(size < 0.6f ? near : far, x);
}

}  // namespace detail

#if WEFT_ON_DEVICE
WEFT_FUNCTION float tanh(float x) { return detail::tanh_estimated(x); }
#endif

// e^x within |x| 2^-24 + 2^-22 of itself, on the device: as 2^power, with what rounding the power loses. The second is 0 where it
// would be subnormal.
#if WEFT_ON_DEVICE
WEFT_FUNCTION float exp_rough(float x) {
    float result;
    asm("ex2.approx.f32 %0, %1;" : "=f"(result) : "f"(x * 0x1.715476p+0f));
    return result;
}
WEFT_FUNCTION float exp_flushed(float x) { return exp2_estimate(x * 0x1.715476p+0f); }
// 1 + tanh(x) within 2^-21 of itself, as 2 / (1 + e^-2x): where tanh(x) is near -1 nothing is lost. Below 2^-125 it is 0.
WEFT_FUNCTION float one_and_tanh(float x) {
    return 2.0f * reciprocal_estimate(1.0f + exp2_estimate(x * -0x1.715476p+1f));
}
// 1 - tanh(x)^2 within |x| 2^-23 + 2^-20 of itself, as 4 e / (1 + e)^2 of the same e: it is no difference of what is nearly equal.
WEFT_FUNCTION float one_less_tanh_squared(float x) {
    const float e = exp2_estimate(x * -0x1.715476p+1f), above = 2.0f * reciprocal_estimate(1.0f + e);
    return above * (::fminf(e, 0x1p+125f) * above);
}
// a / b within 2^-21 of itself, for a b of 1 or more: the reciprocal of its quarter is no subnormal.
WEFT_FUNCTION float divide_rough(float a, float b) { return a * 0.25f * reciprocal_estimate(b * 0.25f); }
#else
WEFT_FUNCTION float exp_rough(float x) { return exp(x); }
WEFT_FUNCTION float exp_flushed(float x) { return exp(x); }
WEFT_FUNCTION float one_and_tanh(float x) { return 1.0f + tanh(x); }
WEFT_FUNCTION float one_less_tanh_squared(float x) { return 1.0f - tanh(x) * tanh(x); }
WEFT_FUNCTION float divide_rough(float a, float b) { return a / b; }
#endif

#if WEFT_ON_DEVICE
WEFT_FUNCTION float rsqrt(float x) { return ::rsqrtf(x); }
WEFT_FUNCTION double rsqrt(double x) { return ::rsqrt(x); }
#else
WEFT_FUNCTION float rsqrt(float x) { return 1.0f / ::sqrtf(x); }
WEFT_FUNCTION double rsqrt(double x) { return 1.0 / ::sqrt(x); }
#endif

// ---------------------------------------------------------------- predicates

template <class T> WEFT_FUNCTION bool is_nan(T a) { return a != a; }
template <class T> WEFT_FUNCTION bool is_inf(T a) {
    if constexpr (is_floating<T>) return a == T(INFINITY) || a == -T(INFINITY);
    return false;
}
template <class T> WEFT_FUNCTION bool is_finite(T a) {
    if constexpr (is_floating<T>) return a - a == T(0);
    return true;
}

// ---------------------------------------------------------------- order

// Python's max and min: a unless b is greater (less), so a NaN is kept as a and dropped as b.
template <class T> WEFT_FUNCTION T python_max(T a, T b) { return b > a ? b : a; }
template <class T> WEFT_FUNCTION T python_min(T a, T b) { return b < a ? b : a; }

// NaN propagates.
template <class T> WEFT_FUNCTION T maximum(T a, T b) { return (a > b) | (a != a) ? a : b; }
template <class T> WEFT_FUNCTION T minimum(T a, T b) { return (a < b) | (a != a) ? a : b; }

// NaN gives way to a number.
template <class T> WEFT_FUNCTION T drop_nan_max(T a, T b) { return (b > a) | (a != a) ? b : a; }
template <class T> WEFT_FUNCTION T drop_nan_min(T a, T b) { return (b < a) | (a != a) ? b : a; }

#if WEFT_ON_DEVICE
// One instruction each for floats.
template <> WEFT_FUNCTION float maximum(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
template <> WEFT_FUNCTION float minimum(float a, float b) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
template <> WEFT_FUNCTION float drop_nan_max(float a, float b) { return ::fmaxf(a, b); }
template <> WEFT_FUNCTION float drop_nan_min(float a, float b) { return ::fminf(a, b); }
#elif defined(WEFT_SIMULATED)
// As those instructions: of zeros of both signs the greater is +0.
template <> WEFT_FUNCTION float maximum(float a, float b) {
    if ((a != a) | (b != b)) return NAN;
    return a == b ? float_of(bits_of(a) & bits_of(b)) : a > b ? a : b;
}
template <> WEFT_FUNCTION float minimum(float a, float b) {
    if ((a != a) | (b != b)) return NAN;
    return a == b ? float_of(bits_of(a) | bits_of(b)) : a < b ? a : b;
}
template <> WEFT_FUNCTION float drop_nan_max(float a, float b) { return a != a ? b : b != b ? a : maximum(a, b); }
template <> WEFT_FUNCTION float drop_nan_min(float a, float b) { return a != a ? b : b != b ? a : minimum(a, b); }
#endif

template <class T> WEFT_FUNCTION T sign(T a) { return T((a > T(0)) - (a < T(0))); }

template <class T> WEFT_FUNCTION T absolute(T a) {
    if constexpr (is_floating<T>) {
        return weft::copysign(a, T(1));
    } else {
        return a < T(0) ? wrapping_neg(a) : a;
    }
}

// One of two numbers that are both computed.
WEFT_FUNCTION float select(bool condition, float then, float otherwise) {
#if WEFT_ON_DEVICE
    float result;  // by its instruction: NVRTC takes a branch around what is used by one side
    asm("{ .reg .pred p; setp.ne.s32 p, %1, 0; selp.f32 %0, %2, %3, p; }"
        : "=f"(result) : "r"(int(condition)), "f"(then), "f"(otherwise));
    return result;
#else
    return condition ? then : otherwise;
#endif
}

// ---------------------------------------------------------------- division

namespace detail {

// The whole part of a rounded quotient, towards minus infinity, and what it leaves of the dividend, rounded once: of the other sign
// than the divisor where the quotient was rounded up to a whole number. Neither tells of a quotient that is large, infinite or NaN,
// nor of an infinite divisor.
struct FloorOfQuotient {
    float whole;
    float left;
    bool tells;
    WEFT_FUNCTION FloorOfQuotient(float a, float b) {
        const float quotient = a / b;
        whole = weft::floor(quotient);
        left = weft::fma(-whole, b, a);
        tells = absolute(quotient) < 0x1p22f && left == left;
    }
    WEFT_FUNCTION bool one_too_many(float b) const { return left != 0.0f && (left < 0.0f) != (b < 0.0f); }
};

}  // namespace detail

// Python's a // b and a % b: towards minus infinity, the remainder with the sign of b. An integer divided by 0 gives 0.
template <class T> WEFT_FUNCTION T modulo(T a, T b) {
    if constexpr (is_floating<T>) {
        if constexpr (sizeof(T) == 4) {
            const detail::FloorOfQuotient floor(a, b);
            const float remainder = floor.one_too_many(b) ? floor.left + b : floor.left;
            if (floor.tells) return remainder == 0.0f ? weft::copysign(0.0f, b) : remainder;
        }
        const T remainder = weft::fmod(a, b);
        if (remainder == T(0)) return weft::copysign(T(0), b);
        return (remainder < T(0)) != (b < T(0)) ? remainder + b : remainder;
    } else {
        if (b == T(0) || (detail::is_signed<T> && b == T(-1))) return T(0);  // the lowest number % -1 traps
        const T remainder = T(a % b);
        return remainder != T(0) && (remainder < T(0)) != (b < T(0)) ? T(remainder + b) : remainder;
    }
}

// The same of an a and a b above 0 that 32 bits hold.
template <class T> WEFT_FUNCTION int64_t quotient(int64_t a, int64_t b) {
    const T whole = T(a) / T(b);
    if constexpr (detail::is_signed<T>) return T(a) - whole * T(b) < 0 ? whole - 1 : whole;
    return whole;
}
template <class T> WEFT_FUNCTION int64_t remainder(int64_t a, int64_t b) {
    const T left = T(a) % T(b);
    if constexpr (detail::is_signed<T>) return left < 0 ? left + T(b) : left;
    return left;
}

// Where among `count` neighbours from `first` on a number is, -1 where it is none of them.
template <int count> WEFT_FUNCTION int32_t place_in_run(int64_t number, int64_t first) {
    const uint64_t away = uint64_t(number) - uint64_t(first);
    return away < count ? int32_t(away) : -1;
}

// Whether 64 bits hold the result.
WEFT_FUNCTION bool fits_add(int64_t a, int64_t b) {
    const int64_t sum = wrapping_add(a, b);
    return ((a ^ sum) & (b ^ sum)) >= 0;
}
WEFT_FUNCTION bool fits_sub(int64_t a, int64_t b) {
    const int64_t difference = wrapping_sub(a, b);
    return ((a ^ b) & (a ^ difference)) >= 0;
}
WEFT_FUNCTION bool fits_mul(int64_t a, int64_t b) {
    if (a == 0 || b == 0) return true;
    const int64_t product = wrapping_mul(a, b);
    const int64_t lowest = -9223372036854775807 - 1;
    if ((a == -1 && b == lowest) || (b == -1 && a == lowest)) return false;
    return product / b == a;
}

WEFT_FUNCTION bool fits_shl(int64_t a, int64_t amount) {
    if (a == 0 || amount <= 0) return true;
    return amount < 64 && int64_t(uint64_t(a) << amount) >> amount == a;
}
WEFT_FUNCTION bool fits_pow(int64_t base, int64_t exponent) {
    int64_t result = 1;
    if (base >= -1 && base <= 1) return true;
    for (int64_t k = 0; k < exponent; ++k) {  // of 64 rounds at most
        if (!fits_mul(result, base)) return false;
        result = wrapping_mul(result, base);
    }
    return true;
}

template <class T> WEFT_FUNCTION T floor_divide(T a, T b) {
    if constexpr (is_floating<T>) {
        if constexpr (sizeof(T) == 4) {
            const detail::FloorOfQuotient floor(a, b);
            if (floor.tells) return floor.one_too_many(b) ? floor.whole - 1.0f : floor.whole;
        }
        if (b == T(0)) return a / b;
        const T remainder = weft::fmod(a, b);
        T quotient = (a - remainder) / b;  // whole but for rounding
        if (remainder != T(0) && (remainder < T(0)) != (b < T(0))) quotient -= T(1);
        if (quotient == T(0)) return weft::copysign(T(0), a / b);
        const T whole = weft::floor(quotient);
        return quotient - whole > T(0.5) ? whole + T(1) : whole;
    } else {
        if (b == T(0)) return T(0);
        if (detail::is_signed<T> && b == T(-1)) return wrapping_neg(a);  // the lowest number / -1 traps
        const T quotient = T(a / b);
        const T remainder = T(a % b);
        return remainder != T(0) && (remainder < T(0)) != (b < T(0)) ? T(quotient - T(1)) : quotient;
    }
}

// The greatest common divisor, by Euclid, of absolute values that are unsigned: that of the lowest number fits there.
template <class T> WEFT_FUNCTION T gcd(T a, T b) {
    using Word = unsigned_word<T>;
    Word x = Word(a < T(0) ? Word(0) - Word(a) : Word(a));
    Word y = Word(b < T(0) ? Word(0) - Word(b) : Word(b));
    while (x != 0) {
        const Word rest = y % x;
        y = x;
        x = rest;
    }
    return T(y);
}
// The least common multiple, the absolute value of a product that wraps; a product of narrow integers does not.
template <class T> WEFT_FUNCTION T lcm(T a, T b) {
    const T divisor = gcd(a, b);
    if (divisor == T(0)) return T(0);
    if constexpr (sizeof(T) < 4) return T(absolute(int32_t(a / divisor) * int32_t(b)));
    return absolute(wrapping_mul(T(a / divisor), b));
}

// At most a bound; a NaN stays.
WEFT_FUNCTION float at_most(float bound, float a) {
#if WEFT_ON_DEVICE
    return minimum(a, bound);
#else
    return python_min(a, bound);  // one instruction there
#endif
}

WEFT_FUNCTION double erf(double x) { return ::erf(x); }

// Within 1.3 units of the last place (found by trying every float). Below 0.92 an odd polynomial; above, 1 - 2^q(|x|):
// both are fused multiply-adds throughout, which leaves the pipe of selects and compares to others.
WEFT_FUNCTION float erf(float x) {
    const float near = detail::erf_near(x);
#if WEFT_ON_DEVICE || defined(WEFT_SIMULATED)
    const float size = at_most(4.0f, absolute(x));  // beyond it erf is 1
#else
    const float size = detail::magnitude_up_to(4.0f, x);
#endif
    float q = 0x1.26e8c6p-12f;
    q = fma(q, size, -0x1.1ed486p-8f);
    q = fma(q, size, 0x1.064034p-5f);
    q = fma(q, size, -0x1.32dba4p-3f);
    q = fma(q, size, -0x1.d6b902p-1f);
    q = fma(q, size, -0x1.a0776ep+0f);
    q = fma(q, size, -0x1.392b54p-12f);
#if WEFT_ON_DEVICE || defined(WEFT_SIMULATED)
    const float far = weft::copysign(1.0f - exp2_estimate(q), x);
    return absolute(x) < 0.92f ? near : far;
#else
    const float far = detail::with_sign(1.0f - detail::exp2_within(q), x);
    return detail::magnitude(x) >= 0.92f ? far : near;  // NaN is near
#endif
}

WEFT_FUNCTION double gelu(double x) { return x * (0.5 * ::erfc(x * -0.7071067811865476)); }

// x times the normal distribution function, which is 2^q(|x|) below 0 and 1 less it above. The polynomial q was fitted to the
// logarithm of erfc by reweighted least squares, its coefficients rounded one after the other. The result is within five units
// of the last place where x > -1. Below, it loses digits, and fewer than x (1 + erf(x / sqrt 2)) / 2 does, of which none is left
// at -6: a few percent are wrong there, until the result is 0 from -13 on.
WEFT_FUNCTION float gelu(float x) {
#if WEFT_ON_DEVICE || defined(WEFT_SIMULATED)
    const float size = at_most(16.0f, absolute(x));  // where 2^q is 0
    float q = -0x1.c4861ep-28f;
    q = fma(q, size, 0x1.4131eep-22f);
    q = fma(q, size, -0x1.67e77ep-18f);
    q = fma(q, size, 0x1.8f5caep-15f);
    q = fma(q, size, -0x1.9a1972p-13f);
    q = fma(q, size, -0x1.2dd7fcp-13f);
    q = fma(q, size, 0x1.d0ad90p-8f);
    q = fma(q, size, -0x1.ae3f18p-5f);
#else  // the terms of high powers in two halves, which do not wait for one another
    const float size = detail::magnitude_up_to(13.0f, x);  // where the exponent of 2^q is that of 0
    const float square = size * size;
    float q = fma(-0x1.67e77ep-18f, size, 0x1.8f5caep-15f);
    const float high = fma(fma(-0x1.c4861ep-28f, size, 0x1.4131eep-22f), square, q);
    const float middle = fma(fma(-0x1.9a1972p-13f, size, -0x1.2dd7fcp-13f), square, fma(0x1.d0ad90p-8f, size, -0x1.ae3f18p-5f));
    q = fma(high, square * square, middle);
#endif
    q = fma(q, size, -0x1.d63876p-2f);
    q = fma(q, size, -0x1.26aee4p+0f);
    q = fma(q, size, -1.0f);
#if WEFT_ON_DEVICE || defined(WEFT_SIMULATED)
    const float above = x >= 0.0f ? 1.0f : 0.0f;
    return x * absolute(above - exp2_estimate(q));
#else
    const float above = float_of(~uint32_t(int32_t(bits_of(x)) >> 31) & bits_of(1.0f));  // 1 without a sign, 0 with one
    return x * absolute(above - detail::exp2_within(q));
#endif
}

// A number that many are divided by: one division, then two products, within 1.5 units of the last place of the quotient.
// Powers of two keep the reciprocal of a very small or very large divisor ordinary; where they overflow or underflow, so
// does the quotient.
template <class T> struct Divisor {
    T scale;
    T reciprocal;
    WEFT_FUNCTION explicit Divisor(T divisor) {
        constexpr bool single = sizeof(T) == 4;
        const T size = weft::copysign(divisor, T(1));
        const bool small = size < (single ? T(0x1p-100f) : T(0x1p-100));
        const bool large = size > (single ? T(0x1p100f) : T(0x1p100));
        scale = small ? T(0x1p64f) : large ? T(0x1p-64f) : T(1);
        reciprocal = T(1) / (divisor * scale);
    }
};

template <class T> WEFT_FUNCTION T divide(T a, const Divisor<T>& by) { return a * by.scale * by.reciprocal; }

// The same where the divisor is known to be neither very small nor very large.
template <class T> struct OrdinaryDivisor {
    T reciprocal;
    WEFT_FUNCTION explicit OrdinaryDivisor(T divisor) : reciprocal(T(1) / divisor) {}
};

template <class T> WEFT_FUNCTION T divide(T a, const OrdinaryDivisor<T>& by) { return a * by.reciprocal; }

// A number that many are divided by, with the bits of a division where the quotient is 0, infinite or NaN, or from 2^-100 to 2^127 in
// size; below and above within two units of the last place. A power of two, by which both are multiplied, takes the divisor into
// [1/2, 1): then neither the reciprocal nor what is computed from it leaves the range of floats before the quotient does. What a
// product with the correctly rounded reciprocal leaves over is exact, and mends the product (Markstein; tried for every dividend of
// thousands of divisors). Where nothing is left over, or what is infinite or NaN, the product is the quotient, with its sign.
struct ExactDivisor {
    float scale;
    float scaled;
    float reciprocal;
    WEFT_FUNCTION explicit ExactDivisor(float divisor) {
        const int32_t power = 0x7e800000 - int32_t(bits_of(divisor) & 0x7f800000u);  // the bits of the power of two
        scale = float_of(power > 0x00400000 ? power : 0x00400000);
        scaled = divisor * scale;
        reciprocal = 1.0f / scaled;
    }
};

WEFT_FUNCTION float divide(float a, const ExactDivisor& by) {
    const float dividend = a * by.scale, quotient = dividend * by.reciprocal;
    const float over = weft::fma(-quotient, by.scaled, dividend);
    return absolute(over) < absolute(quotient) ? weft::fma(over, by.reciprocal, quotient) : quotient;
}

// ---------------------------------------------------------------- powers and the logistic function

// Integers wrap; a negative exponent gives the whole part of the quotient.
template <class T> WEFT_FUNCTION T power(T base, T exponent) {
    if constexpr (is_floating<T>) {
        if constexpr (sizeof(T) == 4) {
#if WEFT_ON_DEVICE
            return ::powf(base, exponent);
#else
            return power_of(base, exponent);
#endif
        } else {
            return ::pow(base, exponent);
        }
    } else {
        if (exponent < T(0)) {
            if (base == T(1)) return base;
            return base == T(-1) ? ((exponent & T(1)) ? base : T(1)) : T(0);
        }
        T result = T(1);
        while (exponent != T(0)) {
            if (exponent & T(1)) result = wrapping_mul(result, base);
            base = wrapping_mul(base, base);
            exponent = T(exponent >> 1);
        }
        return result;
    }
}

template <class T> WEFT_FUNCTION T sigmoid(T x) {
    const T tail = weft::exp(-weft::absolute(x));
    return (x >= T(0) ? T(1) : tail) / (T(1) + tail);
}

#if WEFT_ON_DEVICE || defined(WEFT_SIMULATED)
// The same as 1 / (1 + e^-x), without a branch, which a division and an exponential have for their special cases: x is kept
// where e^-x is finite, and its reciprocal 0 beyond, as it is where it would be subnormal. 2^power is e^-x but for what rounding
// the power has lost, by which it is mended. Within six units of the last place (four with a division and an
// exponential) for estimates that are 1.5 beside.
template <> WEFT_FUNCTION float sigmoid(float x) {
    const float kept = minimum(maximum(x, -88.5f), 104.0f);
    const float power = kept * -0x1.715476p+0f;
    const float missing = fma(power, 0x1.05c61p-29f, fma(power, -0x1.62e430p-1f, -kept));  // log(2) in two parts
    const float estimate = exp2_estimate(power);
    const float sum = 1.0f + fma(estimate, missing, estimate);
    const float reciprocal = reciprocal_estimate(sum);
    return fma(fma(-sum, reciprocal, 1.0f), reciprocal, reciprocal);
}
#endif

}  // namespace weft
