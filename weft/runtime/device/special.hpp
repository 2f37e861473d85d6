// Special functions of floats on the host, without branches or calls, so that loops over them vectorise.
#pragma once

#include "weft/scalar.cuh"

namespace weft {
namespace special {

// The normal distribution function: half of erfc(-x / sqrt 2), the square of x in two parts. Within 5.1 units of the last place.
inline float ndtr(float x) {
    const float size = weft::detail::magnitude(x);
    const float kept = size > 14.42f ? 14.42f : size;  // already 0
    const float square = kept * kept;
    const float lost = ::fmaf(kept, kept, -square);
    const float scaled = 0.5f * weft::detail::scaled_erfc(0.70710678f * kept);
    const float tail = weft::detail::scaled_exp(-0.5f * square, 0) * ::fmaf(scaled, -0.5f * lost, scaled);
    const float far = x < 0.0f ? tail : 1.0f - tail;
    return size < 0.7f ? ::fmaf(0.5f, weft::detail::erf_near(0.70710678f * x), 0.5f) : far;
}

// x times a polynomial of w = -log(1 - x^2), or of its root where x is beside 1 (the variables are those of Giles, Approximating
// the erfinv function, 2010). Within 2.4 units of the last place.
inline float erfinv(float x) {
    const float w = -weft::log(::fmaf(-x, x, 1.0f));
    const float a = w - 2.5f, b = ::sqrtf(w) - 3.25f;
    const float near = weft::detail::polynomial(a, -0x1.1ba764p-27f, 0x1.dfa7bcp-26f, 0x1.ee186cp-22f, -0x1.d88ab8p-19f,
                                                -0x1.4bcdcap-18f, 0x1.ca5ed6p-13f, -0x1.4866fp-10f, -0x1.11c988p-8f,
                                                0x1.f91e8ap-3f, 0x1.805c5ep+0f);
    const float far = weft::detail::polynomial(b, 0x1.f8f354p-14f, -0x1.31e9e4p-15f, -0x1.b53c6ep-12f, 0x1.ffb584p-11f,
                                               -0x1.b3afe2p-10f, 0x1.46883ep-9f, -0x1.ec27bcp-9f, 0x1.5fecdep-8f,
                                               0x1.0158a8p+0f, 0x1.8abcc4p+1f);
    const float result = x * (w < 5.0f ? near : far);
    return weft::detail::magnitude(x) == 1.0f ? x * INFINITY : result;
}

}  // namespace special
}  // namespace weft
