// Special functions, for float and double, one meaning on the host and on the device. DLMF is the NIST Digital Library of
// Mathematical Functions, https://dlmf.nist.gov.
//
// What is long is not inlined on the device: an expression that a thread computes for several elements calls it.
#pragma once

#include "weft/scalar.cuh"
#if !WEFT_ON_DEVICE
#include "weft/special.hpp"
#endif

namespace weft {
namespace special {

// Floats on the host, where what is chosen between is computed without a branch, so that loops vectorise.
template <class T> inline constexpr bool on_the_host = !WEFT_ON_DEVICE && sizeof(T) == 4;

// ---------------------------------------------------------------- logarithms

template <class T> WEFT_FUNCTION T logit(T x) { return weft::log(x / (T(1) - x)); }

// x log(y) and x log(1 + y), 0 where x is 0 and y a number.
template <class T> WEFT_FUNCTION T xlogy(T x, T y) { return is_nan(y) ? y : x == T(0) ? T(0) : x * weft::log(y); }
template <class T> WEFT_FUNCTION T xlog1py(T x, T y) { return is_nan(y) ? y : x == T(0) ? T(0) : x * weft::log1p(y); }

// -y log(x) - (1 - y) log(1 - x), the logarithms at least -100.
template <class T> WEFT_FUNCTION T binary_cross_entropy(T x, T y) {
    return (y - T(1)) * maximum(weft::log1p(-x), T(-100)) - y * maximum(weft::log(x), T(-100));
}

// ---------------------------------------------------------------- error functions

// e^(x^2) erfc(x). Up to where erfc leaves the normal numbers by that product, the square in two parts; beyond by the asymptotic
// series sum over k of (-1)^k (2k - 1)!! / (2 x^2)^k over x sqrt(pi) (DLMF 7.12.1).
template <class T> WEFT_LONG_FUNCTION T erfcx(T x) {
    if (x > (sizeof(T) == 4 ? T(8) : T(25))) {
        const T step = T(0.5) / x / x;
        T sum = T(1);
        for (int k = 15; k > 0; k -= 2) sum = T(1) - T(k) * step * sum;
        return T(0.5641895835477563) / x * sum;
    }
    const T square = x * x;
    if (square > T(1000)) return T(INFINITY);
    return weft::exp(square) * (T(1) + weft::fma(x, x, -square)) * weft::erfc(x);
}

// The normal distribution function erfc(-x / sqrt 2) / 2. Where it is small it is erfcx times e^(-x^2 / 2), that square in two
// parts, since a rounded x / sqrt 2 would show in it x^2 times.
template <class T> WEFT_LONG_FUNCTION T ndtr(T x) {
    const T size = absolute(x);
    if (!(size > T(1))) return T(0.5) * weft::erfc(x * T(-0.7071067811865476));
    if (size > T(40)) return x > T(0) ? T(1) : T(0);
    const T square = x * x;
    const T power = weft::exp(T(-0.5) * square) * (T(1) - T(0.5) * weft::fma(x, x, -square));
    const T tail = T(0.5) * power * erfcx(size * T(0.7071067811865476));
    return x > T(0) ? T(1) - tail : tail;
}
template <class T> WEFT_LONG_FUNCTION T log_ndtr(T x) {
    if (x < T(-1)) return weft::log(T(0.5) * erfcx(x * T(-0.7071067811865476))) - T(0.5) * x * x;
    return weft::log1p(-ndtr(-x));
}

// -x log(x).
template <class T> WEFT_FUNCTION T entr(T x) {
    if (x > T(0)) return -x * weft::log(x);
    return is_nan(x) ? x : x == T(0) ? T(0) : -T(INFINITY);
}

namespace detail {

// The y > 0 with erfc(y) = q, for q in (0, 1): Winitzki's approximation (A handy approximation for the error function and its
// inverse, 2008), then Halley's iteration for log erfc(y) - log(q), whose slope varies little.
template <class T> WEFT_LONG_FUNCTION T erfc_inverse(T q) {
    const T logarithm = weft::log(q);
    const T both = logarithm + weft::log(T(2) - q);  // log(1 - x^2) of x = 1 - q
    const T half = T(4.330746750799873) + T(0.5) * both;
    T y = weft::sqrt(weft::sqrt(half * half - both * T(6.802721088435374)) - half);
    for (int k = 0; k < (sizeof(T) == 4 ? 2 : 3); ++k) {
        const T scaled = erfcx(y);
        const T slope = T(-1.1283791670955126) / scaled;  // of log erfc
        const T bend = slope + T(2) * y;                  // its derivative over itself, negated
        const T ratio = (weft::log(scaled) - weft::fma(y, y, logarithm)) / slope;
        y -= ratio / (T(1) + T(0.5) * ratio * bend);
    }
    return y;
}

}  // namespace detail

// Up to 1/2 by Halley's iteration for erf(y) - x, beyond by the inverse of erfc.
template <class T> WEFT_LONG_FUNCTION T erfinv(T x) {
    const T size = absolute(x);
    if (!(size <= T(1))) return T(NAN);
    if (size == T(1)) return x * T(INFINITY);
    if (size > T(0.5)) return weft::copysign(detail::erfc_inverse(T(1) - size), x);
    const T square = x * x;
    T y = x * (T(0.886226925452758) + square * (T(0.2320136665346544) + square * T(0.12755617530559793)));
    for (int k = 0; k < 2; ++k) {
        const T error = (weft::erf(y) - x) * T(0.886226925452758) * weft::exp(y * y);
        y -= error / (T(1) + y * error);
    }
    return y;
}

// The inverse of the normal distribution function.
template <class T> WEFT_LONG_FUNCTION T ndtri(T p) {
    if (!(p >= T(0) && p <= T(1))) return T(NAN);
    if (p == T(0) || p == T(1)) return p == T(0) ? -T(INFINITY) : T(INFINITY);
    constexpr T root = T(1.4142135623730951);
    if (absolute(p - T(0.5)) <= T(0.25)) return root * erfinv(T(2) * p - T(1));
    return p < T(0.5) ? -root * detail::erfc_inverse(T(2) * p) : root * detail::erfc_inverse(T(2) * (T(1) - p));
}

// ---------------------------------------------------------------- gamma functions

#if WEFT_ON_DEVICE
WEFT_FUNCTION float lgamma(float x) { return ::lgammaf(x); }
WEFT_FUNCTION double lgamma(double x) { return ::lgamma(x); }
#elif defined(__GLIBC__) || defined(__APPLE__)
// Those that write no variable that threads share.
inline float lgamma(float x) {
    int sign;
    return ::lgammaf_r(x, &sign);
}
inline double lgamma(double x) {
    int sign;
    return ::lgamma_r(x, &sign);
}
#else
inline float lgamma(float x) { return ::lgammaf(x); }
inline double lgamma(double x) { return ::lgamma(x); }
#endif

// The logarithmic derivative of the gamma function: reflection below 0 (DLMF 5.5.4), recurrence up to 10 (5.5.2), then the
// asymptotic series (5.11.2).
template <class T> WEFT_LONG_FUNCTION T digamma(T x) {
    if (x == T(0)) return weft::copysign(T(INFINITY), -x);
    T result = T(0);
    if (x < T(0)) {
        const T rest = x - weft::round(x);  // small beside a pole
        if (rest == T(0) || is_nan(rest)) return T(NAN);
        constexpr T pi = T(3.141592653589793);
        result = -pi / weft::tan(pi * rest);
        x = T(1) - x;
    }
    T shift = T(0);
    while (x < T(10)) {
        shift += T(1) / x;
        x += T(1);
    }
    const T z = T(1) / (x * x);
    T sum = T(0.08333333333333333);
    sum = T(-0.021092796092796094) + z * sum;
    sum = T(0.007575757575757576) + z * sum;
    sum = T(-0.004166666666666667) + z * sum;
    sum = T(0.003968253968253968) + z * sum;
    sum = T(-0.008333333333333333) + z * sum;
    sum = T(0.08333333333333333) + z * sum;
    return result + ((weft::log(x) - T(0.5) / x - (x < T(1e17) ? z * sum : T(0))) - shift);
}

// The Hurwitz zeta function: the first terms, then Euler and Maclaurin's formula for the rest of the sum (DLMF 25.11.5, 2.10.1).
template <class T> WEFT_LONG_FUNCTION T zeta(T s, T q) {
    if (s == T(1)) return T(INFINITY);
    if (!(s > T(1)) || is_nan(q)) return T(NAN);
    if (q <= T(0)) {
        if (q == weft::floor(q)) return T(INFINITY);
        if (s != weft::floor(s)) return T(NAN);
    }
    T sum = T(0);
    T at = q;
    for (int k = 0; k < 10 || at <= T(10); ++k) {
        const T term = power(at, -s);
        sum += term;
        if (k > 0 && absolute(term) < absolute(sum) * (sizeof(T) == 4 ? T(1e-9f) : T(1e-18)) && at > T(0)) return sum;
        at += T(1);
        if (!is_finite(sum)) return sum < T(0) && at < T(0.5) ? T(INFINITY) : sum;  // the next term is larger than this one
    }
    const T first = power(at, -s);
    sum += first * at / (s - T(1)) + T(0.5) * first;
    constexpr double numbers[] = {0.08333333333333333, -0.001388888888888889, 3.306878306878307e-05, -8.267195767195768e-07,
                                  2.08767569878681e-08, -5.284190138687493e-10, 1.3382536530684679e-11, -3.3896802963225827e-13,
                                  8.586062056277845e-15, -2.174868698558062e-16, 5.5090028283602295e-18, -1.3954464685812522e-19};
    T factor = first * s / at;
    for (int k = 0; k < 12; ++k) {
        const T term = T(numbers[k]) * factor;
        sum += term;
        if (absolute(term) < absolute(sum) * (sizeof(T) == 4 ? T(1e-9f) : T(1e-18))) break;
        factor *= (s + T(2 * k + 1)) * (s + T(2 * k + 2)) / (at * at);
    }
    return sum;
}

// The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x) (DLMF 5.15.1, 25.11.12), by reflection of the first below 1/2.
template <class T> WEFT_LONG_FUNCTION T polygamma(T n, T x) {
    if (n == T(0)) return digamma(x);
    if (x == T(INFINITY)) return T(0);
    if (n == T(1) && x < T(0.5)) {
        constexpr T pi = T(3.141592653589793);
        const T rest = x - weft::round(x);
        const T sine = weft::sin(pi * rest);
        return sine == T(0) ? T(INFINITY) : pi * pi / (sine * sine) - zeta(T(2), T(1) - x);
    }
    T factor = T(1);
    for (T k = T(2); k <= n && is_finite(factor); k += T(1)) factor *= k;
    const T odd = n - T(2) * weft::floor(T(0.5) * n);
    const T size = is_finite(factor) ? factor * zeta(n + T(1), x) : weft::exp(special::lgamma(n + T(1))) * zeta(n + T(1), x);
    return odd == T(1) ? size : -size;
}

// ---------------------------------------------------------------- Bessel functions

namespace detail {

// A sum of Chebyshev polynomials at t in [-1, 1], by Clenshaw's recurrence (DLMF 3.11.15). floats: how many matter to a float.
template <class T, int floats, int size> WEFT_FUNCTION T chebyshev(const double (&c)[size], T t) {
    constexpr int count = sizeof(T) == 4 ? floats : size;
    T next = T(0), last = T(0);
#if WEFT_ON_DEVICE
#pragma unroll
#elif defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 64
#endif
    for (int k = count - 1; k > 0; --k) {
        const T now = weft::fma(T(2) * t, next, T(c[k]) - last);
        last = next;
        next = now;
    }
    return weft::fma(t, next, T(c[0]) - last);
}

// The functions below, smooth parts taken out, were interpolated at 64 Chebyshev points with 40 digits; what is less than a
// unit in the last place is left out.

// e^-x I0(x) and e^-x I1(x) / x at x = 4 (t + 1), and sqrt(x) times e^-x I0(x) and e^-x I1(x) at x = 16 / (t + 1).
template <class T> WEFT_FUNCTION T i0_near(T t) {
    constexpr double c[] = {
        0.33839763720473803, -0.3046826723431984, 0.17162090152220877, -0.09490109704804764, 0.04930528423967071,
        -0.02373741480589947, 0.010546460394594998, -0.004324309995050576, 0.0016394756169413357, -0.0005763755745385824,
        0.00018850288509584165, -5.754195010082104e-05, 1.6448448070728896e-05, -4.4167383584587505e-06,
        1.1173875391201037e-06, -2.670793853940612e-07, 6.046995022541919e-08, -1.300025009986248e-08,
        2.6598237246823866e-09, -5.189795601635263e-10, 9.675809035373237e-11, -1.726826291441556e-11,
        2.95505266312964e-12, -4.856446783111929e-13, 7.676185498604936e-14, -1.1685332877993451e-14,
        1.715391285555133e-15, -2.431279846547955e-16, 3.3307945188222384e-17, -4.4153416464793395e-18};
    return chebyshev<T, 20>(c, t);
}
template <class T> WEFT_FUNCTION T i1_near(T t) {
    constexpr double c[] = {
        0.12629359322181682, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516,
        -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758,
        -0.00016176081582589674, 4.781565107550054e-05, -1.3273163656039436e-05, 3.4702513081376785e-06,
        -8.568720264695455e-07, 2.0032947535521353e-07, -4.445059128796328e-08, 9.381537386495773e-09,
        -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11, 1.1736186298890901e-11,
        -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14, 7.600684294735408e-15,
        -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17, 2.7779141127610464e-18};
    return chebyshev<T, 19>(c, t);
}
template <class T> WEFT_FUNCTION T i0_far(T t) {
    constexpr double c[] = {
        0.4022452055070544, 0.0033691164782556943, 6.889758346916825e-05, 2.8913705208347567e-06, 2.0489185894690638e-07,
        2.266668990498178e-08, 3.3962320257083865e-09, 4.94060238822497e-10, 1.1889147107846439e-11,
        -3.1499165279632416e-11, -1.3215811840447713e-11, -1.7941785315068062e-12, 7.180124451383666e-13,
        3.8527783827421426e-13, 1.54008621752141e-14, -4.150569347287222e-14, -9.554846698828307e-15,
        3.8116806693526224e-15, 1.7725601330565263e-15, -3.425485619677219e-16, -2.8276239805165836e-16,
        3.461222867697461e-17, 4.46562142029676e-17, -4.830504485944182e-18, -7.233180487874754e-18};
    return chebyshev<T, 8>(c, t);
}
template <class T> WEFT_FUNCTION T i1_far(T t) {
    constexpr double c[] = {
        0.38928811750914005, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06,
        -2.512236237870209e-07, -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10,
        -1.8974958123505413e-11, 3.2526035830154884e-11, 1.4125807436613782e-11, 2.0356285441470896e-12,
        -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14, 4.272440016711951e-14,
        1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
        2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17, 4.414348323071708e-18,
        7.517296310842105e-18, -9.314178867326884e-19, -1.242193275194891e-18};
    return chebyshev<T, 8>(c, t);
}

// K0(x) + log(x / 2) I0(x) and x (K1(x) - log(x / 2) I1(x)) at x^2 = 2 (t + 1), sqrt(x) e^x K0(x) and K1(x) at x = 4 / (t + 1).
template <class T> WEFT_FUNCTION T k0_near(T t) {
    constexpr double c[] = {
        -0.2676636966169514, 0.3442898999246285, 0.0359799365153615, 0.001264615411446926, 2.286212103119452e-05,
        2.5347910790261494e-07, 1.904516377220209e-09, 1.0349695257633625e-11, 4.2598161427910826e-14,
        1.3744654358807508e-16};
    return chebyshev<T, 7>(c, t);
}
template <class T> WEFT_FUNCTION T k1_near(T t) {
    constexpr double c[] = {
        0.7626501136694739, -0.3531559607765449, -0.12261118082265715, -0.006975723859639864, -0.0001730288957513052,
        -2.4334061415659684e-06, -2.213387630734726e-08, -1.4114883926335278e-10, -6.666901694199329e-13,
        -2.427449850519366e-15, -7.023863479386288e-18};
    return chebyshev<T, 7>(c, t);
}
template <class T> WEFT_FUNCTION T k0_far(T t) {
    constexpr double c[] = {
        1.2201515410329777, -0.0314481013119645, 0.0015698838857300533, -0.00012849549581627802, 1.39498137188765e-05,
        -1.8317555227191195e-06, 2.766813639445015e-07, -4.660489897687948e-08, 8.574034017414225e-09,
        -1.6975345093890614e-09, 3.5773972814003283e-10, -7.957489244477396e-11, 1.8559491149549264e-11,
        -4.514597883374519e-12, 1.1403405882073441e-12, -2.9800969231481784e-13, 8.032890775068375e-14,
        -2.2275133267462965e-14, 6.340076476276646e-15, -1.848593377920907e-15, 5.5120559994043335e-16,
        -1.6782311257549006e-16, 5.2103917776435543e-17, -1.6475805939842632e-17, 5.3004337711773354e-18};
    return chebyshev<T, 10>(c, t);
}
template <class T> WEFT_FUNCTION T k1_far(T t) {
    constexpr double c[] = {
        1.3603130952422213, 0.10392373657681724, -0.002857816859622779, 0.00019521551847135162, -1.936197974166083e-05,
        2.406484947837217e-06, -3.5019606030878126e-07, 5.7410841254500495e-08, -1.0345762465678097e-08,
        2.0150497551970347e-09, -4.1903547593419254e-10, 9.218315187605315e-11, -2.129967838427791e-11,
        5.139639673482343e-12, -1.2891739609498229e-12, 3.348419666052243e-13, -8.976705182010146e-14,
        2.4771544242195988e-14, -7.0198370892147685e-15, 2.038703166239861e-15, -6.057047270643018e-16,
        1.8380935752430455e-16, -5.689462849193648e-17, 1.7940510478863572e-17, -5.7567444820733025e-18};
    return chebyshev<T, 10>(c, t);
}

}  // namespace detail

// Modified Bessel functions, times e^-|x| and e^x.
template <class T> WEFT_LONG_FUNCTION T i0e(T x) {
    const T size = absolute(x);
    if constexpr (on_the_host<T>) {
        const T near = detail::i0_near(size * T(0.25) - T(1)), far = detail::i0_far(T(16) / size - T(1)) / weft::sqrt(size);
        return size <= T(8) ? near : far;
    }
    if (size <= T(8)) return detail::i0_near(size * T(0.25) - T(1));
    return detail::i0_far(T(16) / size - T(1)) / weft::sqrt(size);
}
template <class T> WEFT_LONG_FUNCTION T i1e(T x) {
    const T size = absolute(x);
    if constexpr (on_the_host<T>) {
        const T near = size * detail::i1_near(size * T(0.25) - T(1));
        const T far = detail::i1_far(T(16) / size - T(1)) / weft::sqrt(size);
        return weft::copysign(size <= T(8) ? near : far, x);
    }
    if (size <= T(8)) return x * detail::i1_near(size * T(0.25) - T(1));
    return weft::copysign(detail::i1_far(T(16) / size - T(1)) / weft::sqrt(size), x);
}
template <class T> WEFT_LONG_FUNCTION T i0(T x) {
    const T half = weft::exp(T(0.5) * absolute(x));  // in two parts: e^|x| itself may be too large
    return half * i0e(x) * half;
}
template <class T> WEFT_LONG_FUNCTION T i1(T x) {
    const T half = weft::exp(T(0.5) * absolute(x));
    return half * i1e(x) * half;
}
template <class T> WEFT_FUNCTION T log_of_half(T x) {
    return x < T(1e-30) ? weft::log(x) - T(0.6931471805599453) : weft::log(T(0.5) * x);
}
template <class T> WEFT_LONG_FUNCTION T scaled_modified_bessel_k0(T x) {
    if (x == T(0)) return T(INFINITY);
    if (!(x > T(0))) return T(NAN);
    if (x > T(2)) return detail::k0_far(T(4) / x - T(1)) / weft::sqrt(x);
    return weft::exp(x) * (detail::k0_near(T(0.5) * x * x - T(1)) - log_of_half(x) * i0(x));
}
template <class T> WEFT_LONG_FUNCTION T scaled_modified_bessel_k1(T x) {
    if (x == T(0)) return T(INFINITY);
    if (!(x > T(0))) return T(NAN);
    if (x > T(2)) return detail::k1_far(T(4) / x - T(1)) / weft::sqrt(x);
    return weft::exp(x) * (detail::k1_near(T(0.5) * x * x - T(1)) / x + log_of_half(x) * i1(x));
}
template <class T> WEFT_LONG_FUNCTION T modified_bessel_k0(T x) {
    if (!(x <= T(2)) || x <= T(0)) return scaled_modified_bessel_k0(x) * weft::exp(-x);
    return detail::k0_near(T(0.5) * x * x - T(1)) - log_of_half(x) * i0(x);
}
template <class T> WEFT_LONG_FUNCTION T modified_bessel_k1(T x) {
    if (!(x <= T(2)) || x <= T(0)) return scaled_modified_bessel_k1(x) * weft::exp(-x);
    return detail::k1_near(T(0.5) * x * x - T(1)) / x + log_of_half(x) * i1(x);
}

// Those of the first and the second kind are the platform's.
#define WEFT_BESSEL(name, function)                                            \
    WEFT_FUNCTION float bessel_##name(float x) { return ::function##f(x); }    \
    WEFT_FUNCTION double bessel_##name(double x) { return ::function(x); }
WEFT_BESSEL(j0, j0)
WEFT_BESSEL(j1, j1)
#undef WEFT_BESSEL
#define WEFT_BESSEL(name, function)                                                                                             \
    WEFT_FUNCTION float bessel_##name(float x) { return x > 0.0f ? ::function##f(x) : x == 0.0f ? -INFINITY : NAN; }            \
    WEFT_FUNCTION double bessel_##name(double x) {                                                                              \
        return x > 0.0 ? ::function(x) : x == 0.0 ? -double(INFINITY) : double(NAN);                                            \
    }
WEFT_BESSEL(y0, y0)
WEFT_BESSEL(y1, y1)
#undef WEFT_BESSEL

// sin(x) / x, below 1/2 by its series.
template <class T> WEFT_FUNCTION T spherical_bessel_j0(T x) {
    if (is_inf(x)) return T(0);
    if (absolute(x) >= T(0.5)) return weft::sin(x) / x;
    const T z = x * x;
    T sum = T(1) - z / T(182);
    sum = T(1) - z / T(110) * (T(1) - z / T(156) * sum);
    return T(1) - z / T(6) * (T(1) - z / T(20) * (T(1) - z / T(42) * (T(1) - z / T(72) * sum)));
}

// ---------------------------------------------------------------- orthogonal polynomials

namespace detail {

// The n-th of polynomials with p_0 = 1, p_1 = first and p_(k+1) = (a(k) x + b(k)) p_k - c(k) p_(k-1) (DLMF 18.9.1); 0 below
// the 0-th. step: (k, p_k, p_(k-1)) to p_(k+1).
template <class T, class Step> WEFT_FUNCTION T orthogonal(T n, T first, Step step) {
    if (!(n < T(1 << 30))) return T(NAN);
    const int degree = int(n);
    if (n <= T(-1)) return T(0);
    if (degree == 0) return T(1);
    T last = T(1), now = first;
    for (int k = 1; k < degree; ++k) {
        const T next = step(T(k), now, last);
        last = now;
        now = next;
    }
    return now;
}

}  // namespace detail

#define WEFT_POLYNOMIAL(name, first, next)                                                                \
    template <class T> WEFT_LONG_FUNCTION T name(T x, T n) {                                               \
        return detail::orthogonal(n, T(first), [x](T k, T p, T q) { return (void)k, T(next); });           \
    }
WEFT_POLYNOMIAL(chebyshev_polynomial_t, x, T(2) * x * p - q)
WEFT_POLYNOMIAL(chebyshev_polynomial_u, T(2) * x, T(2) * x * p - q)
WEFT_POLYNOMIAL(chebyshev_polynomial_v, T(2) * x - T(1), T(2) * x * p - q)
WEFT_POLYNOMIAL(chebyshev_polynomial_w, T(2) * x + T(1), T(2) * x * p - q)
WEFT_POLYNOMIAL(hermite_polynomial_h, T(2) * x, T(2) * (x * p - k * q))
WEFT_POLYNOMIAL(hermite_polynomial_he, x, x * p - k * q)
WEFT_POLYNOMIAL(laguerre_polynomial_l, T(1) - x, ((T(2) * k + T(1) - x) * p - k * q) / (k + T(1)))
WEFT_POLYNOMIAL(legendre_polynomial_p, x, ((T(2) * k + T(1)) * x * p - k * q) / (k + T(1)))
#undef WEFT_POLYNOMIAL
#define WEFT_SHIFTED(kind)                                                                        \
    template <class T> WEFT_FUNCTION T shifted_chebyshev_polynomial_##kind(T x, T n) {            \
        return chebyshev_polynomial_##kind(T(2) * x - T(1), n);                                   \
    }
WEFT_SHIFTED(t)
WEFT_SHIFTED(u)
WEFT_SHIFTED(v)
WEFT_SHIFTED(w)
#undef WEFT_SHIFTED

}  // namespace special
}  // namespace weft

#include "weft/airy.cuh"
#include "weft/incomplete_gamma.cuh"
