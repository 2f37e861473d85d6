// Special functions, for float and double, one meaning on the host and on the device. DLMF is the NIST Digital Library of
// Mathematical Functions, https://dlmf.nist.gov.
//
// What is long is not inlined on the device: an expression that a thread computes for several elements calls it.
#pragma once

#include "weft/scalar.cuh"

#if WEFT_ON_DEVICE
#define WEFT_LONG_FUNCTION __device__ __noinline__
#else
#define WEFT_LONG_FUNCTION inline
#endif

namespace weft {
namespace special {

// ---------------------------------------------------------------- logarithms

template <class T> WEFT_FUNCTION T logit(T x) { return weft::log(x / (T(1) - x)); }

// x log(y) and x log(1 + y), 0 where x is 0 and y a number.
template <class T> WEFT_FUNCTION T xlogy(T x, T y) { return is_nan(y) ? y : x == T(0) ? T(0) : x * weft::log(y); }
template <class T> WEFT_FUNCTION T xlog1py(T x, T y) { return is_nan(y) ? y : x == T(0) ? T(0) : x * weft::log1p(y); }

// -y log(x) - (1 - y) log(1 - x), the logarithms at least -100.
template <class T> WEFT_FUNCTION T binary_cross_entropy(T x, T y) {
    return (y - T(1)) * maximum(weft::log1p(-x), T(-100)) - y * maximum(weft::log(x), T(-100));
}

}  // namespace special
}  // namespace weft
