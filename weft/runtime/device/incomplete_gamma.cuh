// The incomplete gamma functions, for float and double, one meaning on the host and on the device; DLMF 8.
#pragma once

#include "weft/special.cuh"

namespace weft {
namespace special {
namespace detail {

// log(1 + m) - m. Where m is small, log(1 + m) = 2 artanh(m / (2 + m)), by its series.
template <class T> WEFT_FUNCTION T log1p_less(T m, T ratio) {
    if (absolute(m) > T(0.4)) return weft::log(ratio) - m;
    const T s = m / (T(2) + m), square = s * s;
    T sum = T(1) / T(23);
    for (int k = 21; k > 1; k -= 2) sum = T(1) / T(k) + square * sum;
    return T(2) * s * square * sum - s * m;
}

// Whether x is so near to a large `a` that the uniform expansion holds (DLMF 8.12), and series would be long.
template <class T> WEFT_FUNCTION bool near_a_large(T a, T x) { return a >= T(200) && absolute(x - a) <= T(0.3) * a; }

// x^a e^-x / Gamma(a + 1). From 10 on by Stirling's formula (DLMF 5.11.3), x and `a` taken together.
template <class T> WEFT_LONG_FUNCTION T gamma_density(T a, T x) {
    if (a < T(10)) {
        if (x > T(1500)) return T(0);
        const T half = weft::exp(T(-0.5) * x);
        return half * power(x, a) * half * weft::exp(-special::lgamma(a + T(1)));
    }
    const T z = T(1) / (a * a);
    T sum = T(-0.029550653594771242);
    sum = T(0.00641025641025641) + z * sum;
    sum = T(-0.001917526917526918) + z * sum;
    sum = T(0.0008417508417508417) + z * sum;
    sum = T(-0.0005952380952380953) + z * sum;
    sum = T(0.0007936507936507937) + z * sum;
    sum = T(-0.002777777777777778) + z * sum;
    sum = T(0.08333333333333333) + z * sum;
    const T power_of_e = a * log1p_less((x - a) / a, x / a) - sum / a;
    return weft::exp(power_of_e) / weft::sqrt(T(6.283185307179586) * a);
}

// P(a, x) by its series (DLMF 8.11.4), for x that is not much larger than `a`.
template <class T> WEFT_LONG_FUNCTION T igamma_series(T a, T x) {
    const T density = gamma_density(a, x);
    if (density == T(0)) return T(0);
    T sum = T(1), term = T(1);
    for (int k = 1; k < 2000; ++k) {
        term *= x / (a + T(k));
        sum += term;
        if (term <= sum * (sizeof(T) == 4 ? T(3e-8) : T(5e-17))) break;
    }
    return density * sum;
}

// Q(a, x) by its continued fraction (DLMF 8.9.2), in Lentz's way, for x above `a` and 1.
template <class T> WEFT_LONG_FUNCTION T igammac_fraction(T a, T x) {
    const T density = gamma_density(a, x);
    if (density == T(0)) return T(0);
    T b = x + T(1) - a;
    T d = T(1) / b;
    T c = T(sizeof(T) == 4 ? 1e30f : 1e300);
    T fraction = d;
    for (int k = 1; k < 2000; ++k) {
        const T by = T(k) * (a - T(k));
        b += T(2);
        d = T(1) / (by * d + b);
        c = b + by / c;
        const T factor = c * d;
        fraction *= factor;
        if (absolute(factor - T(1)) <= (sizeof(T) == 4 ? T(6e-8) : T(2e-16))) break;
    }
    return a * density * fraction;
}

// Q(a, x) of small numbers, where 1 - P(a, x) would lose digits: 1 - x^a / Gamma(a + 1), and the rest of the series
// (DLMF 8.7.1).
template <class T> WEFT_LONG_FUNCTION T igammac_series(T a, T x) {
    const T above = T(1) + a;
    const T lost = a - (above - T(1));
    const T logarithm = a * weft::log(x) - (special::lgamma(above) + lost * digamma(above));
    T sum = T(0), factor = T(1);
    for (int k = 1; k < 100; ++k) {
        factor *= -x / T(k);
        const T term = factor / (a + T(k));
        sum += term;
        if (absolute(term) <= absolute(sum) * (sizeof(T) == 4 ? T(3e-8) : T(5e-17))) break;
    }
    return -weft::expm1(logarithm) - a * weft::exp(logarithm) * sum;
}

// Q(a, x) or P(a, x) beside a large `a`: half of erfc(y) and a series in eta, where y^2 = a eta^2 / 2 = x - a - a log(x / a)
// (DLMF 8.12.3, 8.12.4, 8.12.7). The coefficients are those of the recurrence 8.12.12 for c_k(eta), with 60 digits.
template <class T> WEFT_LONG_FUNCTION T incomplete_gamma_beside(T a, T x, bool upper) {
    constexpr double c[5][20] = {
        {
            -0.3333333333333333, 0.08333333333333333, -0.014814814814814815, 0.0011574074074074073, 0.0003527336860670194,
            -0.0001787551440329218, 3.919263178522438e-05, -2.185448510679992e-06, -1.85406221071516e-06,
            8.296711340953087e-07, -1.7665952736826078e-07, 6.707853543401498e-09, 1.0261809784240309e-08,
            -4.382036018453353e-09, 9.14769958223679e-10, -2.5514193994946248e-11, -5.830772132550426e-11,
            2.4361948020667415e-11, -5.0276692801141755e-12, 1.1004392031956135e-13},
        {
            -0.001851851851851852, -0.003472222222222222, 0.0026455026455026454, -0.0009902263374485596,
            0.00020576131687242798, -4.018775720164609e-07, -1.8098550334489977e-05, 7.64916091608111e-06,
            -1.6120900894563446e-06, 4.647127802807434e-09, 1.378633446915721e-07, -5.752545603517705e-08,
            1.1951628599778148e-08, -1.7543241719747647e-11, -1.0091543710600413e-09, 4.162792991842583e-10,
            -8.56390702649298e-11, 6.067215101604758e-14},
        {
            0.004133597883597883, -0.0026813271604938273, 0.0007716049382716049, 2.0093878600823047e-06,
            -0.0001073665322636516, 5.2923448829120125e-05, -1.2760635188618728e-05, 3.423578734096138e-08,
            1.3721957309062934e-06, -6.298992138380055e-07, 1.4280614206064242e-07, -2.0477098421990866e-10,
            -1.409252991086752e-08, 6.228974084922022e-09, -1.3670488396617114e-09, 9.428356159014678e-13},
        {
            0.0006494341563786008, 0.00022947209362139917, -0.0004691894943952557, 0.00026772063206283885,
            -7.561801671883977e-05, -2.396505113867297e-07, 1.1082654115347302e-05, -5.6749528269915965e-06,
            1.4230900732435883e-06, -2.7861080291528143e-11, -1.6958404091930278e-07, 8.099464905388083e-08,
            -1.9111168485973655e-08, 2.3928620439808118e-12},
        {
            -0.0008618882909167117, 0.0007840392217200666, -0.0002990724803031902, -1.4638452578843418e-06,
            6.641498215465122e-05, -3.968365047179435e-05, 1.1375726970678419e-05, 2.507497226237533e-10,
            -1.6954149536558305e-06, 8.907507532205309e-07, -2.292934834000805e-07, 2.956794137544049e-11}};
    const T m = (x - a) / a;
    const T less = -log1p_less(m, x / a);
    const T eta = weft::copysign(weft::sqrt(T(2) * less), m);
    T sum = T(0);
    for (int k = 4; k >= 0; --k) {
        T inner = T(0);
        for (int n = 19 - 2 * k; n >= 0; --n) inner = T(c[k][n]) + eta * inner;
        sum = inner + sum / a;
    }
    const T square = a * less;
    const T y = weft::sqrt(square);
    const T rest = (upper ? sum : -sum) / weft::sqrt(T(6.283185307179586) * a);
    const T tail = weft::exp(-square) * (T(0.5) * erfcx(y) + ((m > T(0)) == upper ? rest : -rest));
    return (m > T(0)) == upper ? tail : T(1) - tail;
}

// What both are where the series are not asked, as PyTorch has it, beside a NaN too; -1 elsewhere. upper: the one that is 1 where
// x is 0.
template <class T> WEFT_FUNCTION T incomplete_gamma_edge(T a, T x, bool upper) {
    const T at_zero = upper ? T(1) : T(0);
    if (a < T(0) || x < T(0)) return T(NAN);
    if (a == T(0)) return x > T(0) ? T(1) - at_zero : T(NAN);
    if (x == T(0)) return at_zero;
    if (is_inf(a)) return is_inf(x) ? T(NAN) : at_zero;
    if (is_inf(x)) return T(1) - at_zero;
    if (is_nan(a) || is_nan(x)) return T(NAN);
    return T(-1);
}

}  // namespace detail

// The regularised ones: P(a, x), the integral of t^(a-1) e^-t from 0 to x over Gamma(a), and Q(a, x) = 1 - P(a, x).
template <class T> WEFT_LONG_FUNCTION T igammac(T a, T x) {
    const T edge = detail::incomplete_gamma_edge(a, x, true);
    if (!(edge == T(-1))) return edge;
    if (detail::near_a_large(a, x)) return detail::incomplete_gamma_beside(a, x, true);
    if (x > a && x > T(1.1)) return detail::igammac_fraction(a, x);
    const bool small = x <= T(0.5) ? a > T(-0.4) / weft::log(x) : a >= T(0.75) * x;
    if (small || x > T(1.1)) return T(1) - detail::igamma_series(a, x);
    return detail::igammac_series(a, x);
}
template <class T> WEFT_LONG_FUNCTION T igamma(T a, T x) {
    const T edge = detail::incomplete_gamma_edge(a, x, false);
    if (!(edge == T(-1))) return edge;
    if (detail::near_a_large(a, x)) return detail::incomplete_gamma_beside(a, x, false);
    if (x > a && x > T(1)) return T(1) - igammac(a, x);
    return detail::igamma_series(a, x);
}

}  // namespace special
}  // namespace weft
