// Functions of complex numbers, whose parts are float or double: one meaning on the host and on the device. A number is two values
// here as everywhere in generated code; each function gives one part of the result. What is long is not inlined on the device.
//
// Kahan: Branch cuts for complex elementary functions, or much ado about nothing's sign bit (1987).
#pragma once

#include "weft/scalar.cuh"

namespace weft {
namespace complex {

namespace detail {

template <class T> struct Pair {
    T re, im;
};

template <class T> WEFT_FUNCTION Pair<T> pair(T re, T im) { return Pair<T>{re, im}; }
template <class T> WEFT_FUNCTION T most() { return sizeof(T) == 4 ? T(3.4028234663852886e38) : T(1.7976931348623157e308); }
template <class T> WEFT_FUNCTION bool is_either_infinity(T x) { return absolute(x) > most<T>(); }

// e^x c, where the power alone may leave the range. Where c is 0 there is none.
template <class T> WEFT_FUNCTION T power_times(T x, T c) {
    const T far = sizeof(T) == 4 ? T(88) : T(709);
    const T shift = x > far ? (sizeof(T) == 4 ? T(32) : T(64)) : T(0);
    const T scaled = weft::exp(x - shift) * c;
    return shift > T(0) ? scaled * (sizeof(T) == 4 ? T(78962960182680.7) : T(6.235149080811617e27)) : scaled;
}

// By Smith's method, as PyTorch: by the larger part of the divisor. By 0 each part is divided.
template <class T> WEFT_FUNCTION Pair<T> divide(T a, T b, T c, T d) {
    const T size_c = absolute(c), size_d = absolute(d);
    const bool first = size_c >= size_d;
    const T large = first ? c : d, small = first ? d : c;
    const T ratio = small / large, scale = T(1) / weft::fma(small, ratio, large);
    const T p = first ? a : b, q = first ? b : a;
    const T re = weft::fma(q, ratio, p) * scale, im = weft::fma(-p, ratio, q) * scale;
    const bool zero = size_c == T(0) && size_d == T(0);
    return pair(zero ? a / size_c : re, zero ? b / size_d : first ? im : -im);
}

template <class T> WEFT_FUNCTION Pair<T> exp(T x, T y) {
    if (is_either_infinity(x) && !is_finite(y)) return x > T(0) ? pair(x, y - y) : pair(T(0), weft::copysign(T(0), y));
    return pair(power_times(x, weft::cos(y)), y == T(0) ? y : power_times(x, weft::sin(y)));
}

// e^z - 1 = (e^x - 1) cos y - 2 sin(y / 2)^2 + i e^x sin y.
template <class T> WEFT_LONG_FUNCTION Pair<T> expm1(T x, T y) {
    const T half = weft::sin(T(0.5) * y);
    const T re = weft::expm1(x) * weft::cos(y) - T(2) * half * half;
    return pair(y == T(0) ? weft::expm1(x) : re, y == T(0) ? y : power_times(x, weft::sin(y)));
}

template <class T> WEFT_LONG_FUNCTION Pair<T> sinh(T x, T y) {
    const T size = absolute(x), far = sizeof(T) == 4 ? T(80) : T(700);
    const T cosine = weft::cos(y), sine = weft::sin(y);
    const bool large = size > far;  // where the two functions of x are one
    const T re = large ? weft::copysign(T(0.5), x) * power_times(size, cosine) : weft::sinh(x) * cosine;
    const T im = large ? T(0.5) * power_times(size, sine) : weft::cosh(x) * sine;
    if (!is_finite(y) && (x == T(0) || is_either_infinity(x))) return pair(x == T(0) ? x : T(INFINITY), y - y);
    return pair(y == T(0) ? weft::sinh(x) : re, y == T(0) ? y : im);
}

template <class T> WEFT_LONG_FUNCTION Pair<T> cosh(T x, T y) {
    const T size = absolute(x), far = sizeof(T) == 4 ? T(80) : T(700);
    const T cosine = weft::cos(y), sine = weft::sin(y);
    const bool large = size > far;
    const T re = large ? T(0.5) * power_times(size, cosine) : weft::cosh(x) * cosine;
    const T im = large ? weft::copysign(T(0.5), x) * power_times(size, sine) : weft::sinh(x) * sine;
    if (!is_finite(y) && (x == T(0) || is_either_infinity(x))) return pair(x == T(0) ? y - y : T(INFINITY), x == T(0) ? T(0) : y - y);
    const bool axis = x == T(0) || y == T(0);  // the imaginary part is 0, of the sign of the product
    return pair(y == T(0) ? weft::cosh(x) : re, axis ? (x == T(0) ? x : weft::copysign(T(1), x)) * (y == T(0) ? y : sine) : im);
}

// Kahan, section 8. Far from the imaginary axis it is 1 or -1, the rest of the imaginary part 4 sin y cos y e^(-2 |x|).
template <class T> WEFT_LONG_FUNCTION Pair<T> tanh(T x, T y) {
    const T size = absolute(x), far = sizeof(T) == 4 ? T(11) : T(22);
    if (y == T(0)) return pair(weft::tanh(x), y);
    if (!is_finite(y) && !is_either_infinity(x)) return pair(x == T(0) ? x : y - y, y - y);
    if (size > far) {
        const T rest = T(4) * weft::sin(y) * weft::cos(y) * weft::exp(T(-2) * size);
        return pair(weft::copysign(T(1), x), is_finite(y) ? rest : weft::copysign(T(0), y));
    }
    const T t = weft::tan(y), beta = T(1) + t * t;
    const T s = weft::sinh(x), rho = weft::sqrt(T(1) + s * s);
    const T scale = T(1) + beta * s * s;
    return pair(beta * rho * s / scale, t / scale);
}

// x^2 + y^2 - 1 as log1p takes it, the squares and their sum in two parts each.
template <class T> WEFT_FUNCTION T square_less_one(T x, T y) {
    const T large = maximum(absolute(x), absolute(y)), small = minimum(absolute(x), absolute(y));
    const T a = large * large, b = small * small;
    const T rest = weft::fma(large, large, -a) + weft::fma(small, small, -b);
    const T start = a - T(1);  // exact where the sum is near 1
    const T sum = start + b, back = sum - start;
    return sum + ((start - (sum - back)) + (b - back) + rest);
}

template <class T> WEFT_FUNCTION T log_size(T x, T y) {
    const T size = weft::hypot(x, y);
    if (size > T(0.7) && size < T(1.5)) return T(0.5) * weft::log1p(square_less_one(x, y));
    return weft::log(size > most<T>() && is_finite(x) && is_finite(y) ? weft::hypot(T(0.25) * x, T(0.25) * y) : size) +
           (size > most<T>() && is_finite(x) && is_finite(y) ? T(1.3862943611198906) : T(0));
}

template <class T> WEFT_FUNCTION Pair<T> log(T x, T y) { return pair(log_size(x, y), weft::atan2(y, x)); }

// Near 0, half of log1p of 2x + x^2 + y^2, whose terms may cancel: the squares and the sums in two parts each.
template <class T> WEFT_LONG_FUNCTION Pair<T> log1p(T x, T y) {
    const T re = T(1) + x;
    const T angle = weft::atan2(y, re);
    if (!(absolute(x) < T(0.5) && absolute(y) < T(0.5))) return pair(log_size(re, y), angle);
    const T a = T(2) * x, b = x * x, c = y * y;
    const T rest = weft::fma(x, x, -b) + weft::fma(y, y, -c);
    const T first = a + c, back = first - a;
    const T lost = (a - (first - back)) + (c - back);
    return pair(T(0.5) * weft::log1p(first + (b + (lost + rest))), angle);
}

template <class T> WEFT_FUNCTION Pair<T> sqrt(T x, T y) {
    if (is_either_infinity(y)) return pair(T(INFINITY), y);
    const T largest = maximum(absolute(x), absolute(y));
    if (largest == T(0)) return pair(T(0), y);
    // scaled by a power of 4, so that neither the size nor its square root leaves the range
    const T up = sizeof(T) == 4 ? T(1.8889465931478581e22) : T(4.149515568880993e180);     // 2^74, 2^600
    const T down = sizeof(T) == 4 ? T(7.275957614183426e-12) : T(4.909093465297727e-91);  // 2^-37, 2^-300
    const T least = sizeof(T) == 4 ? T(1e-30) : T(1e-290);
    const bool small = largest < least, large = largest > T(0.25) * most<T>();
    const T factor = small ? up : large ? T(0.0625) : T(1);
    const T a = x * factor, b = y * factor;
    const T root = weft::sqrt(T(0.5) * (absolute(a) + weft::hypot(a, b))) * (small ? down : large ? T(4) : T(1));
    const T other = absolute(y) / (T(2) * root);
    if (is_either_infinity(x)) {
        const T none = is_nan(y) ? y : weft::copysign(T(0), y);
        return x > T(0) ? pair(x, none) : pair(absolute(none), weft::copysign(T(INFINITY), y));
    }
    return pair(x < T(0) ? other : root, x < T(0) ? weft::copysign(root, y) : weft::copysign(other, y));
}

// Beyond this size 1 + z is z, for what follows.
template <class T> WEFT_FUNCTION bool is_far(T x, T y) {
    const T far = sizeof(T) == 4 ? T(1e15) : T(1e150);
    return absolute(x) > far || absolute(y) > far;
}

// log |2 z| where |z| is large.
template <class T> WEFT_FUNCTION T log_twice(T x, T y) {
    return weft::log(weft::hypot(T(0.25) * x, T(0.25) * y)) + T(2.0794415416798357);
}

// Kahan's arcsin of -i z, turned back.
template <class T> WEFT_LONG_FUNCTION Pair<T> asinh(T x, T y) {
    if (is_far(x, y)) return pair(weft::copysign(log_twice(x, y), x), weft::atan2(y, absolute(x)));
    if (is_nan(x) && y == T(0)) return pair(x, y);
    const Pair<T> less = sqrt(T(1) + y, -x), more = sqrt(T(1) - y, x);  // of 1 - iz and 1 + iz turned by signs
    const T re = weft::asinh(less.re * more.im - less.im * more.re);
    return pair(re, weft::atan2(y, less.re * more.re - less.im * more.im));
}

template <class T> WEFT_LONG_FUNCTION Pair<T> acos(T x, T y) {
    if (is_far(x, y)) return pair(weft::atan2(absolute(y), x), -weft::copysign(log_twice(x, y), y));
    if (is_nan(y) && x == T(0)) return pair(T(1.5707963267948966), y);
    const Pair<T> less = sqrt(T(1) - x, -y), more = sqrt(T(1) + x, y);
    return pair(T(2) * weft::atan2(less.re, more.re), weft::asinh(more.re * less.im - more.im * less.re));
}

template <class T> WEFT_LONG_FUNCTION Pair<T> acosh(T x, T y) {
    if (is_far(x, y)) return pair(log_twice(x, y), weft::atan2(y, x));
    if (is_nan(y) && x == T(0)) return pair(y, T(1.5707963267948966));
    const Pair<T> less = sqrt(x - T(1), y), more = sqrt(x + T(1), y);
    return pair(weft::asinh(less.re * more.re + less.im * more.im), T(2) * weft::atan2(less.im, more.re));
}

template <class T> WEFT_LONG_FUNCTION Pair<T> atanh(T x, T y) {
    const T size = absolute(x), far = sizeof(T) == 4 ? T(1e9) : T(1e18);
    if (is_nan(y) && (x == T(0) || is_either_infinity(x))) return pair(weft::copysign(T(0), x), y);
    if ((is_nan(x) && !is_either_infinity(y)) || is_nan(y)) return pair(x + y, x + y);
    if (size > far || absolute(y) > far) {
        const T length = weft::hypot(T(0.5) * x, T(0.5) * y);
        const T re = is_finite(length) ? T(0.25) * (x / length) / length : weft::copysign(T(0), x);
        return pair(re, weft::copysign(T(1.5707963267948966), y));
    }
    const T rest = T(1) - size;
    const T near = T(0.25) * weft::log(T(4) + y * y) - T(0.5) * weft::log(absolute(y));  // where |x| is 1
    const T re = rest == T(0) ? near : T(0.25) * weft::log1p(T(4) * size / (rest * rest + y * y));
    return pair(weft::copysign(re, x), T(0.5) * weft::atan2(T(2) * y, rest * (T(1) + size) - y * y));
}

// e^(w log z); of 0, what a power of a number near it is.
template <class T> WEFT_LONG_FUNCTION Pair<T> power(T a, T b, T c, T d) {
    if (c == T(0) && d == T(0)) return pair(T(1), T(0));
    if (a == T(0) && b == T(0) && c > T(0)) return pair(T(0), T(0));
    const Pair<T> logarithm = log(a, b);
    return exp(logarithm.re * c - logarithm.im * d, logarithm.re * d + logarithm.im * c);
}

}  // namespace detail

#define WEFT_COMPLEX(name)                                                                   \
    template <class T> WEFT_FUNCTION T name##_re(T x, T y) { return detail::name(x, y).re; } \
    template <class T> WEFT_FUNCTION T name##_im(T x, T y) { return detail::name(x, y).im; }

WEFT_COMPLEX(exp)
WEFT_COMPLEX(expm1)
WEFT_COMPLEX(log)
WEFT_COMPLEX(log1p)
WEFT_COMPLEX(sqrt)
WEFT_COMPLEX(sinh)
WEFT_COMPLEX(cosh)
WEFT_COMPLEX(tanh)
WEFT_COMPLEX(asinh)
WEFT_COMPLEX(acos)
WEFT_COMPLEX(acosh)
WEFT_COMPLEX(atanh)

#undef WEFT_COMPLEX

template <class T> WEFT_FUNCTION T divide_re(T a, T b, T c, T d) { return detail::divide(a, b, c, d).re; }
template <class T> WEFT_FUNCTION T divide_im(T a, T b, T c, T d) { return detail::divide(a, b, c, d).im; }
template <class T> WEFT_FUNCTION T power_re(T a, T b, T c, T d) { return detail::power(a, b, c, d).re; }
template <class T> WEFT_FUNCTION T power_im(T a, T b, T c, T d) { return detail::power(a, b, c, d).im; }

}  // namespace complex
}  // namespace weft
