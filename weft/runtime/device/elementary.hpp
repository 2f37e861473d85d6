// Elementary functions of floats on the host: without branches or calls, so that loops over them vectorise.
//
// How far off each is, in units of the last place, is from trying every float (a pair: 2^32 of them). Polynomials were fitted by
// reweighted least squares to the least largest relative error, their coefficients rounded one after the other. What is chosen
// between is computed before it is chosen.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace weft {
namespace detail {

// By Horner's rule, the coefficient of the highest power first.
inline float polynomial(float, float value) { return value; }
template <class... T> inline float polynomial(float x, float high, float next, T... rest) {
    return polynomial(x, ::fmaf(high, x, next), rest...);
}
inline double polynomial(double, double value) { return value; }
template <class... T> inline double polynomial(double x, double high, double next, T... rest) {
    return polynomial(x, ::fma(high, x, next), rest...);
}

inline float magnitude(float x) { return float_of(bits_of(x) & 0x7fffffffu); }
inline float with_sign(float size, float sign) {
    return float_of((bits_of(size) & 0x7fffffffu) | (bits_of(sign) & 0x80000000u));
}
// The magnitude, but no more than a bound; of a NaN the bound. Compared as integers, by one instruction.
inline float magnitude_up_to(float bound, float x) {
    const int32_t bits = int32_t(bits_of(x) & 0x7fffffffu), most = int32_t(bits_of(bound));
    return float_of(uint32_t(bits < most ? bits : most));
}
inline float power_of_two(int32_t exponent) { return float_of(uint32_t(exponent + 127) << 23); }  // from -127 (0) on

// x = whole log(2) + rest with |rest| <= log(2) / 2, for |x| up to 128.
struct Exponent {
    int32_t whole;
    float rest;
    explicit Exponent(float x) {
        const float shift = 0x1.8p23f;  // adding it rounds to a whole number, left in the low bits
        const float shifted = ::fmaf(x, 0x1.715476p0f, shift);
        const float number = shifted - shift;
        whole = int32_t(bits_of(shifted) - bits_of(shift));
        rest = ::fmaf(number, 0x1.05c61p-29f, ::fmaf(number, -0x1.62e43p-1f, x));
    }
};

// e^x - 1 for |x| <= log(2) / 2.
inline float expm1_near(float x) {
    const float p = polynomial(x, 0x1.9e3dc4p-13f, 0x1.6d3ca6p-10f, 0x1.1112fp-7f, 0x1.5554f6p-5f, 0x1.555554p-3f, 0.5f);
    return ::fmaf(x * x, p, x);
}

// 2^x for x from -127 (0) to 127.
inline float exp2_within(float x) {
    const float shift = 0x1.8p23f;
    const float shifted = x + shift;
    const uint32_t whole = bits_of(shifted) - bits_of(shift);
    const float sum = polynomial(x - (shifted - shift), 0x1.416b52p-13f, 0x1.5f082ep-10f, 0x1.3b2de0p-7f, 0x1.c6af7cp-5f,
                                 0x1.ebfbdcp-3f, 0x1.62e430p-1f, 1.0f);
    return sum * float_of((whole + 127u) << 23);
}

// 2^shift e^x, for x from -105 (0) to 89 (infinity).
inline float scaled_exp(float x, int32_t shift) {
    const Exponent e(x);
    const float sum = expm1_near(e.rest) + 1.0f;
    const int32_t exponent = e.whole + shift;
    const int32_t half = exponent >> 1;  // in two steps: the power itself may leave the range of normal numbers
    return sum * power_of_two(half) * power_of_two(exponent - half);
}

// x = 2^exponent (1 + rest) with 2/3 <= 1 + rest < 4/3, for a positive x, subnormal ones too.
struct Logarithm {
    float exponent;
    float rest;
    explicit Logarithm(float x) {
        // all ones where x is subnormal: 2^23 times as large it is not. By arithmetic, or GCC does both ways to the end
        const uint32_t tiny = uint32_t(int32_t(bits_of(x) - 0x00800000u) >> 31);
        const uint32_t bits = bits_of(x * float_of(0x3f800000u + (tiny & (23u << 23))));
        const int32_t whole = int32_t(bits - 0x3f2aaaabu) >> 23;
        rest = float_of(bits - (uint32_t(whole) << 23)) - 1.0f;
        exponent = float(whole - int32_t(tiny & 23u));
    }
};

// log(1 + f) - f for f from -1/3 to 1/3.
inline float log_beyond(float f) {
    const float p = polynomial(f, -0x1.06bc02p-3f, 0x1.1e9c42p-3f, -0x1.f3ae3p-4f, 0x1.1ecaa8p-3f, -0x1.5597ep-3f, 0x1.99d11p-3f,
                               -0x1.ffff14p-3f, 0x1.555504p-2f);
    return f * f * ::fmaf(f, p, -0.5f);
}

// What a logarithm is of other numbers than the positive finite ones. lowest: where it is -infinity.
inline float outside_log(float x, float lowest, float result) {
    const float other = x == lowest ? -INFINITY : NAN;
    const float above = x == INFINITY ? INFINITY : result;
    return x > lowest ? above : other;
}

inline float log_of(const Logarithm& a) {
    const float tail = ::fmaf(a.exponent, -0x1.05c61p-29f, log_beyond(a.rest));
    return ::fmaf(a.exponent, 0x1.62e43p-1f, a.rest + tail);
}

// The angle of 0 to pi/4 with a tangent from 0 to 1.
inline float atan_near(float z) {
    const float square = z * z;
    const float p = polynomial(square, -0x1.d4782ap-10f, 0x1.64b212p-7f, -0x1.fdefc4p-6f, 0x1.da59eap-5f, -0x1.581456p-4f,
                               0x1.c08f2ep-4f, -0x1.2420b4p-3f, 0x1.9991e6p-3f, -0x1.55553ep-2f);
    return ::fmaf(z * square, p, z);
}

// asin(size) up to 1/2, and beyond what it lacks to pi/2 is twice this.
inline float asin_near(float size) {
    const bool far = size > 0.5f;
    const float square = far ? ::fmaf(-0.5f, size, 0.5f) : size * size;
    const float root = ::sqrtf(square);
    const float z = far ? root : size;
    const float p =
        polynomial(square, 0x1.59594cp-5f, 0x1.8c41a8p-6f, 0x1.747b6ep-5f, 0x1.330206p-4f, 0x1.5555c8p-3f);
    return ::fmaf(z * square, p, z);
}

// e^(x^2) erfc(x) from 0 to 10.2: a polynomial of (x - 4) / (x + 4), over x + 4.
inline float scaled_erfc(float x) {
    const float inverse = 1.0f / (x + 4.0f);
    const float quotient = (x - 4.0f) * inverse;
    const float missing = ::fmaf(quotient, -x, ::fmaf(-4.0f, quotient + 1.0f, x));
    const float t = ::fmaf(inverse, missing, quotient);
    const float p = polynomial(t, -0x1.80ac1ap-11f, -0x1.646d4ap-12f, 0x1.986842p-8f, -0x1.af53dcp-6f, 0x1.38c136p-4f,
                               -0x1.64639ep-3f, 0x1.52cbbcp-2f, -0x1.14eabep-1f, 0x1.8be1fap-1f, -0x1.f3fe32p-1f, 0x1.18932cp+0f);
    return p * inverse;
}

constexpr float half_pi = 0x1.921fb6p+0f, half_pi_rest = -0x1.777a5cp-25f;

}  // namespace detail

inline float exp(float x) {
    x = x > 89.0f ? 89.0f : x;  // already infinity and 0; NaN stays
    return detail::scaled_exp(x < -105.0f ? -105.0f : x, 0);
}

inline float exp2(float x) {
    x = x > 129.0f ? 129.0f : x;  // already infinity and 0; NaN stays
    x = x < -151.0f ? -151.0f : x;
    const float shift = 0x1.8p23f;
    const float shifted = x + shift;
    const int32_t whole = int32_t(bits_of(shifted) - bits_of(shift));
    const float r = x - (shifted - shift);
    const float sum = detail::polynomial(r, 0x1.417842p-13f, 0x1.5f0948p-10f, 0x1.3b2dd4p-7f, 0x1.c6af7ap-5f, 0x1.ebfbdcp-3f,
                                         0x1.62e43p-1f, 1.0f);
    const int32_t half = whole >> 1;
    return sum * detail::power_of_two(half) * detail::power_of_two(whole - half);
}

inline float expm1(float x) {
    float kept = x > 89.0f ? 89.0f : x;
    kept = kept < -18.0f ? -18.0f : kept;  // already -1
    const detail::Exponent e(kept);
    const float less = detail::expm1_near(e.rest);
    const float scale = detail::power_of_two(e.whole - 1);  // half of it, since 2^128 is no float
    return detail::with_sign(2.0f * ::fmaf(less, scale, scale - 0.5f), x);
}

inline float log(float x) { return detail::outside_log(x, 0.0f, detail::log_of(detail::Logarithm(x))); }

inline float log2(float x) {
    const detail::Logarithm a(x);
    const float f = a.rest;
    const float p = detail::polynomial(f, -0x1.79da2cp-3f, 0x1.9d32e2p-3f, -0x1.68c7ecp-3f, 0x1.9dd212p-3f, -0x1.ecc7f4p-3f,
                                       0x1.279e26p-2f, -0x1.7153fap-2f, 0x1.ec702cp-2f, -0x1.715476p-1f);
    const float tail = ::fmaf(f * f, p, f * 0x1.4ae0cp-26f);
    return detail::outside_log(x, 0.0f, a.exponent + ::fmaf(f, 0x1.715476p+0f, tail));
}

inline float log10(float x) {
    const detail::Logarithm a(x);
    const float f = a.rest;
    const float p = detail::polynomial(f, -0x1.cc3f1cp-5f, 0x1.f226bep-5f, -0x1.b0fbf2p-5f, 0x1.f225f8p-5f, -0x1.28c092p-4f,
                                       0x1.63f6e2p-4f, -0x1.bcb67p-4f, 0x1.287a2ep-3f, -0x1.bcb7b2p-3f);
    const float tail = ::fmaf(f * f, p, ::fmaf(f, -0x1.5b235ep-27f, a.exponent * -0x1.ec10cp-27f));
    const float near = ::fmaf(f, 0x1.bcb7b2p-2f, tail);
    return detail::outside_log(x, 0.0f, ::fmaf(a.exponent, 0x1.344136p-2f, near));
}

// The logarithm of the sum 1 + x, with what rounding it has lost.
inline float log1p(float x) {
    const float sum = 1.0f + x;
    const float part = sum - 1.0f;
    const float lost = (x - part) + (1.0f - (sum - part));
    const int32_t whole = int32_t(bits_of(sum) - 0x3f2aaaabu) >> 23;
    detail::Logarithm a(1.0f);
    a.exponent = float(whole);
    a.rest = ::fmaf(lost, detail::power_of_two(whole < 127 ? -whole : -127), float_of(bits_of(sum) - (uint32_t(whole) << 23)) - 1.0f);
    const float result = detail::outside_log(x, -1.0f, detail::log_of(a));
    return x == 0.0f ? x : result;
}

// Up to 0.55 an odd polynomial, beyond 1 - 2 / (e^2x + 1).
inline float tanh(float x) {
    const float square = x * x;
    const float p = detail::polynomial(square, -0x1.9a478ep-8f, 0x1.59102ep-6f, -0x1.b9226ep-5f, 0x1.110cfcp-3f, -0x1.55554ap-2f);
    const float near = ::fmaf(x * square, p, x);
    const float size = detail::magnitude_up_to(10.0f, x);  // already 1
    const detail::Exponent e(2.0f * size);
    const float scale = detail::power_of_two(e.whole);
    const float sum = ::fmaf(detail::expm1_near(e.rest), scale, scale) + 1.0f;
    return detail::with_sign(detail::magnitude(x) >= 0.55f ? 1.0f - 2.0f / sum : near, x);  // NaN is near
}

inline float sinh(float x) {
    const float size = detail::magnitude(x);
    const float square = x * x;
    const float p = detail::polynomial(square, 0x1.756cacp-19f, 0x1.a022bap-13f, 0x1.1110ep-7f, 0x1.555556p-3f);
    const float near = ::fmaf(x * square, p, x);
    const float half = detail::scaled_exp(size > 90.0f ? 90.0f : size, -1);
    const float far = detail::with_sign(half - 0.25f / half, x);
    return size < 1.0f ? near : far;
}

inline float cosh(float x) {
    const float size = detail::magnitude(x);
    const float half = detail::scaled_exp(size > 90.0f ? 90.0f : size, -1);
    return half + 0.25f / half;
}

inline float atanh(float x) {
    const float size = detail::magnitude(x);
    return detail::with_sign(0.5f * log1p(2.0f * size / (1.0f - size)), x);
}

inline float atan(float x) {
    const float size = detail::magnitude(x);
    const bool far = size > 1.0f;
    const float inverse = 1.0f / size;
    const float angle = detail::atan_near(far ? inverse : size);
    const float rest = detail::half_pi - (angle - detail::half_pi_rest);
    return detail::with_sign(far ? rest : angle, x);
}

inline float atan2(float y, float x) {
    const float up = detail::magnitude(y), along = detail::magnitude(x);
    const bool steep = up > along;
    const float more = steep ? up : along, less = steep ? along : up;
    const float quotient = less / more;
    const float alike = more == 0.0f ? 0.0f : 1.0f;  // both 0, or both infinite
    const float angle = detail::atan_near(less == more ? alike : quotient);
    const float first = steep ? detail::half_pi - (angle - detail::half_pi_rest) : angle;
    const float second = 2.0f * detail::half_pi - (first - 2.0f * detail::half_pi_rest);
    const float result = int32_t(bits_of(x)) < 0 ? second : first;
    return (x != x) | (y != y) ? NAN : detail::with_sign(result, y);
}

inline float asin(float x) {
    const float size = detail::magnitude(x);
    const float near = detail::asin_near(size);
    const float far = detail::half_pi - ::fmaf(2.0f, near, -detail::half_pi_rest);
    return detail::with_sign(size > 0.5f ? far : near, x);
}

inline float acos(float x) {
    const float size = detail::magnitude(x);
    const float near = detail::asin_near(size);
    const float half = x < 0.0f ? 2.0f * detail::half_pi - ::fmaf(2.0f, near, -2.0f * detail::half_pi_rest) : 2.0f * near;
    const float middle = detail::half_pi - (detail::with_sign(near, x) - detail::half_pi_rest);
    return size > 0.5f ? half : middle;
}

inline float erfc(float x) {
    const float size = detail::magnitude(x);
    const float kept = size > 10.2f ? 10.2f : size;  // already 0
    const float square = kept * kept;
    const float lost = ::fmaf(kept, kept, -square);
    const float scaled = detail::scaled_erfc(kept);
    const float tail = detail::scaled_exp(-square, 0) * ::fmaf(scaled, -lost, scaled);
    const float far = x < 0.0f ? 2.0f - tail : tail;
    return size < 0.5f ? 1.0f - detail::erf_near(x) : far;
}

// Scaled where squares would leave the range of normal numbers.
inline float hypot(float a, float b) {
    const float first = detail::magnitude(a), second = detail::magnitude(b);
    const float more = first > second ? first : second;
    const float scale = more > 0x1p60f ? 0x1p-70f : more < 0x1p-50f ? 0x1p90f : 1.0f;
    const float back = more > 0x1p60f ? 0x1p70f : more < 0x1p-50f ? 0x1p-90f : 1.0f;
    const float x = first * scale, y = second * scale;
    const float result = ::sqrtf(::fmaf(x, x, y * y)) * back;
    return (first == INFINITY) | (second == INFINITY) ? INFINITY : result;
}

inline float nextafter(float from, float to) {
    const int32_t bits = int32_t(bits_of(from));
    const bool away = (to > from) == (bits >= 0);
    const float moved = float_of(uint32_t(away ? bits + 1 : bits - 1));
    const float smallest = detail::with_sign(0x1p-149f, to);
    const float result = from == 0.0f ? smallest : moved;
    return (from != from) | (to != to) ? NAN : from == to ? to : result;
}

// 2^(b log2(a)), the logarithm and the product in double precision.
inline float power_of(float a, float b) {
    const float size = detail::magnitude(a);
    const detail::Logarithm parts(size);
    const double f = parts.rest;
    const double p = detail::polynomial(f, 0x1.4263f7f6f19e0p-3, -0x1.542e5d647ff2fp-3, 0x1.fa477a5da0f1fp-4,
                                        -0x1.19855f9ff2f53p-3, 0x1.497ebffef8df7p-3, -0x1.724a6f3582626p-3,
                                        0x1.a60b4e503ca0ap-3, -0x1.ec687bc8c35c9p-3, 0x1.2776e1acb0206p-2,
                                        -0x1.715484fa5eaeep-2, 0x1.ec709d913a58fp-2, -0x1.7154764b33e3cp-1,
                                        0x1.71547652bbc66p+0);
    const double logarithm = ::fma(f, p, double(parts.exponent));
    double power = logarithm * double(b);
    power = power < 129.0 ? power : 129.0;  // a NaN, too
    power = power < -151.0 ? -151.0 : power;
    const double shift = 0x1.8p52;
    const double whole = (power + shift) - shift;
    const float r = float(power - whole);
    const int32_t exponent = int32_t(float(whole));
    const float sum = detail::polynomial(r, 0x1.417842p-13f, 0x1.5f0948p-10f, 0x1.3b2dd4p-7f, 0x1.c6af7ap-5f, 0x1.ebfbdcp-3f,
                                         0x1.62e43p-1f, 1.0f);
    const int32_t half = exponent >> 1;
    const float finite = sum * detail::power_of_two(half) * detail::power_of_two(exponent - half);
    // of 0 and infinity the logarithm is infinite; of exponents from 2^24 on every one is even
    const bool grows = (size > 1.0f) == (b > 0.0f);
    const bool ends = (size == 0.0f) | (size == INFINITY);
    float result = ends ? (grows ? INFINITY : 0.0f) : finite;
    const float whole_b = ::truncf(b);
    const float half_b = 0.5f * b;
    const bool integral = whole_b == b;
    const bool odd = integral & (::truncf(half_b) != half_b);
    result = (int32_t(bits_of(a)) < 0) & odd ? -result : result;
    result = (a < 0.0f) & (a > -INFINITY) & !integral ? NAN : result;
    result = (a != a) | (b != b) ? NAN : result;
    result = (size == 1.0f) & (detail::magnitude(b) == INFINITY) ? 1.0f : result;
    return (b == 0.0f) | (a == 1.0f) ? 1.0f : result;
}

// ---------------------------------------------------------------- angles

namespace detail {

// 2 / pi, less multiples of 4 / 2^k where all of a float's digits are worth 2^k or more: a product with such a float is the same
// but for whole turns. For k from 0 on, in two parts.
inline constexpr double quarter_turns[] = {
    0x1.45f306dc9c883p-1, 0x1.45f306dc9c883p-1, 0x1.45f306dc9c883p-1, 0x1.17cc1b727220bp-3, 0x1.17cc1b727220bp-3,
    0x1.7cc1b727220a9p-7, 0x1.7cc1b727220a9p-7, 0x1.7cc1b727220a9p-7, 0x1.7cc1b727220a9p-7, 0x1.f306dc9c882a5p-9,
    0x1.f306dc9c882a5p-9, 0x1.e60db9391054ap-10, 0x1.cc1b727220a95p-11, 0x1.9836e4e44152ap-12, 0x1.306dc9c882a54p-13,
    0x1.836e4e44152ap-16, 0x1.836e4e44152ap-16, 0x1.836e4e44152ap-16, 0x1.06dc9c882a54p-17, 0x1.b727220a94fe1p-23,
    0x1.b727220a94fe1p-23, 0x1.b727220a94fe1p-23, 0x1.b727220a94fe1p-23, 0x1.b727220a94fe1p-23, 0x1.b727220a94fe1p-23,
    0x1.6e4e441529fc2p-24, 0x1.b9391054a7f0ap-26, 0x1.b9391054a7f0ap-26, 0x1.727220a94fe14p-27, 0x1.c9c882a53f84fp-29,
    0x1.c9c882a53f84fp-29, 0x1.9391054a7f09dp-30, 0x1.27220a94fe13bp-31, 0x1.391054a7f09d6p-34, 0x1.391054a7f09d6p-34,
    0x1.391054a7f09d6p-34, 0x1.c882a53f84ebp-37, 0x1.c882a53f84ebp-37, 0x1.c882a53f84ebp-37, 0x1.91054a7f09d5fp-38,
    0x1.220a94fe13abfp-39, 0x1.1054a7f09d5f4p-42, 0x1.1054a7f09d5f4p-42, 0x1.1054a7f09d5f4p-42, 0x1.054a7f09d5f48p-46,
    0x1.054a7f09d5f48p-46, 0x1.054a7f09d5f48p-46, 0x1.054a7f09d5f48p-46, 0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52,
    0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.529fc2757d1f5p-52, 0x1.4a7f09d5f47d5p-54,
    0x1.4a7f09d5f47d5p-54, 0x1.29fc2757d1f53p-56, 0x1.29fc2757d1f53p-56, 0x1.4fe13abe8fa9ap-59, 0x1.4fe13abe8fa9ap-59,
    0x1.4fe13abe8fa9ap-59, 0x1.3f84eafa3ea6ap-61, 0x1.3f84eafa3ea6ap-61, 0x1.fc2757d1f534ep-64, 0x1.fc2757d1f534ep-64,
    0x1.fc2757d1f534ep-64, 0x1.f84eafa3ea69cp-65, 0x1.f09d5f47d4d37p-66, 0x1.e13abe8fa9a6fp-67, 0x1.c2757d1f534dep-68,
    0x1.84eafa3ea69bcp-69, 0x1.09d5f47d4d377p-70, 0x1.3abe8fa9a6eep-75, 0x1.3abe8fa9a6eep-75, 0x1.3abe8fa9a6eep-75,
    0x1.3abe8fa9a6eep-75, 0x1.3abe8fa9a6eep-75, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78,
    0x1.abe8fa9a6ee07p-79, 0x1.57d1f534ddc0ep-80, 0x1.5f47d4d377037p-82, 0x1.5f47d4d377037p-82, 0x1.7d1f534ddc0dbp-84,
    0x1.7d1f534ddc0dbp-84, 0x1.f47d4d377036ep-86, 0x1.f47d4d377036ep-86, 0x1.e8fa9a6ee06dbp-87, 0x1.d1f534ddc0db6p-88,
    0x1.a3ea69bb81b6cp-89, 0x1.47d4d377036d9p-90, 0x1.1f534ddc0db63p-92, 0x1.1f534ddc0db63p-92, 0x1.f534ddc0db629p-96,
    0x1.f534ddc0db629p-96, 0x1.f534ddc0db629p-96, 0x1.f534ddc0db629p-96, 0x1.ea69bb81b6c53p-97, 0x1.d4d377036d8a5p-98,
    0x1.a9a6ee06db14bp-99, 0x1.534ddc0db6296p-100, 0x1.4d377036d8a56p-102, 0x1.4d377036d8a56p-102, 0x1.34ddc0db6295ap-104,
};
inline constexpr double quarter_turns_rest[] = {
    -0x1.6b01ec5417056p-55, -0x1.6b01ec5417056p-55, -0x1.6b01ec5417056p-55, -0x1.ac07b1505c159p-57, -0x1.ac07b1505c159p-57,
    0x1.3f84eafa3ea6ap-61, 0x1.3f84eafa3ea6ap-61, 0x1.3f84eafa3ea6ap-61, 0x1.3f84eafa3ea6ap-61, 0x1.fc2757d1f534ep-64,
    0x1.fc2757d1f534ep-64, 0x1.fc2757d1f534ep-64, -0x1.ec54170565912p-71, -0x1.ec54170565912p-71, -0x1.ec54170565912p-71,
    -0x1.ec54170565912p-71, -0x1.ec54170565912p-71, -0x1.ec54170565912p-71, -0x1.ec54170565912p-71, 0x1.d5f47d4d37703p-78,
    0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78, 0x1.d5f47d4d37703p-78,
    0x1.d5f47d4d37703p-78, -0x1.505c1596447e5p-81, -0x1.505c1596447e5p-81, -0x1.505c1596447e5p-81, -0x1.4170565911f92p-83,
    -0x1.4170565911f92p-83, 0x1.7d1f534ddc0dbp-84, -0x1.05c1596447e49p-85, -0x1.70565911f924fp-91, -0x1.70565911f924fp-91,
    -0x1.70565911f924fp-91, -0x1.70565911f924fp-91, -0x1.70565911f924fp-91, -0x1.70565911f924fp-91, 0x1.1f534ddc0db63p-92,
    -0x1.c1596447e493bp-93, 0x1.f534ddc0db629p-96, 0x1.f534ddc0db629p-96, 0x1.f534ddc0db629p-96, -0x1.596447e493ad5p-101,
    -0x1.596447e493ad5p-101, -0x1.596447e493ad5p-101, -0x1.596447e493ad5p-101, 0x1.a6ee06db14acdp-107, 0x1.a6ee06db14acdp-107,
    0x1.a6ee06db14acdp-107, 0x1.a6ee06db14acdp-107, 0x1.a6ee06db14acdp-107, 0x1.a6ee06db14acdp-107, -0x1.6447e493ad4cep-109,
    -0x1.6447e493ad4cep-109, 0x1.377036d8a5665p-110, 0x1.377036d8a5665p-110, 0x1.bb81b6c52b328p-113, 0x1.bb81b6c52b328p-113,
    0x1.bb81b6c52b328p-113, -0x1.11f924eb53362p-115, -0x1.11f924eb53362p-115, -0x1.1f924eb53361ep-119, -0x1.1f924eb53361ep-119,
    -0x1.1f924eb53361ep-119, -0x1.1f924eb53361ep-119, 0x1.c0db6295993c4p-120, -0x1.f924eb53361dep-123, -0x1.f924eb53361dep-123,
    -0x1.f924eb53361dep-123, 0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129,
    0x1.b6c52b3278872p-129, 0x1.b6c52b3278872p-129, 0x1.b6295993c439p-132, 0x1.b6295993c439p-132, 0x1.b6295993c439p-132,
    -0x1.275a99b0ef1bfp-134, -0x1.275a99b0ef1bfp-134, -0x1.3ad4cd8778df8p-137, -0x1.3ad4cd8778df8p-137, 0x1.8a5664f10e41p-138,
    0x1.8a5664f10e41p-138, -0x1.d6a66c3bc6fbep-140, -0x1.d6a66c3bc6fbep-140, 0x1.4acc9e21c821p-143, 0x1.4acc9e21c821p-143,
    0x1.4acc9e21c821p-143, -0x1.6a66c3bc6fbep-144, -0x1.a99b0ef1bef8p-146, -0x1.a99b0ef1bef8p-146, 0x1.664f10e4107f9p-150,
    0x1.664f10e4107f9p-150, 0x1.664f10e4107f9p-150, 0x1.664f10e4107f9p-150, -0x1.3361de37df00dp-151, 0x1.993c439041fe5p-152,
    -0x1.9b0ef1bef806cp-154, -0x1.9b0ef1bef806cp-154, 0x1.93c439041fe51p-156, 0x1.93c439041fe51p-156, -0x1.b0ef1bef806bap-158,
};

// x = (4 turns + quarter) pi / 2 + rest with |rest| <= pi / 4.
struct Angle {
    int32_t quarter;
    float rest;
    explicit Angle(float x) {
        const int32_t exponent = int32_t(bits_of(x) >> 23 & 255u) - 150;
        const int32_t k = exponent < 0 ? 0 : exponent > 104 ? 104 : exponent;
        const double wide = x, turns = quarter_turns[k];
        const double product = wide * turns;
        const double lost = ::fma(wide, turns, -product) + wide * quarter_turns_rest[k];
        const double shift = 0x1.8p52;
        const double shifted = product + shift;
        int64_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        quarter = int32_t(bits);
        rest = float(((product - (shifted - shift)) + lost) * 0x1.921fb54442d18p+0);
    }
};

inline float sin_near(float x) {
    const float square = x * x;
    return ::fmaf(x * square, polynomial(square, 0x1.7c33bp-19f, -0x1.a0596p-13f, 0x1.111174p-7f, -0x1.555556p-3f), x);
}
inline float cos_near(float x) {
    const float square = x * x;
    const float p = polynomial(square, 0x1.99e904p-16f, -0x1.6c0c2ap-10f, 0x1.55554ap-5f);
    return ::fmaf(square * square, p, ::fmaf(-0.5f, square, 1.0f));
}
// sin(rest + quarter pi / 2).
inline float sin_of(float rest, int32_t quarter) {
    const float value = quarter & 1 ? cos_near(rest) : sin_near(rest);
    return float_of(bits_of(value) ^ (uint32_t(quarter & 2) << 30));
}
// tan(x) of x = rest + quarter pi / 2.
inline float tan_of(float x, float rest, int32_t quarter) {
    const float sine = sin_near(rest), cosine = cos_near(rest);
    const bool odd = quarter & 1;
    const float result = (odd ? -cosine : sine) / (odd ? sine : cosine);
    return x == 0.0f ? x : result;
}

}  // namespace detail

inline float sin(float x) {
    const detail::Angle a(x);
    const float result = detail::sin_of(a.rest, a.quarter);
    return x == 0.0f ? x : result;
}

inline float cos(float x) {
    const detail::Angle a(x);
    return detail::sin_of(a.rest, a.quarter + 1);
}

inline float tan(float x) {
    const detail::Angle a(x);
    return detail::tan_of(x, a.rest, a.quarter);
}

}  // namespace weft
