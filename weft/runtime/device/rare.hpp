// Functions of floats with an end where what is rare begins: what they give there is wrong, and noted. Loops over them vectorise,
// or are quicker than those over functions that are right everywhere; whoever finds `rare` set afterwards does the loop again.
#pragma once

#include "weft/scalar.cuh"

namespace weft {
namespace detail {

// An angle as the sum of whole quarters of a turn, up to 2^15, and a rest: pi / 2 in three parts, the first product exact.
struct NearAngle {
    int32_t quarter;
    float rest;
    NearAngle(float x, int& rare) {
        const float size = magnitude(x);
        rare |= (size > 32768.0f) & (size < INFINITY);
        const float shift = 0x1.8p23f;
        const float shifted = ::fmaf(x, 0x1.45f306p-1f, shift);
        const float number = shifted - shift;
        quarter = int32_t(bits_of(shifted) - bits_of(shift));
        rest = ::fmaf(number, -0x1.921fb6p+0f, x);
        rest = ::fmaf(number, 0x1.777a5cp-25f, rest);
        rest = ::fmaf(number, 0x1.ee59dap-50f, rest);
    }
};

}  // namespace detail

inline float sin(float x, int& rare) {
    const detail::NearAngle a(x, rare);
    const float result = detail::sin_of(a.rest, a.quarter);
    return x == 0.0f ? x : result;
}
inline float cos(float x, int& rare) {
    const detail::NearAngle a(x, rare);
    return detail::sin_of(a.rest, a.quarter + 1);
}
inline float tan(float x, int& rare) {
    const detail::NearAngle a(x, rare);
    return detail::tan_of(x, a.rest, a.quarter);
}

// Of a quotient below 2^22, the whole part of which is not below that of the rounded one: what is left is exact.
inline float fmod(float a, float b, int& rare) {
    const float x = detail::magnitude(a), y = detail::magnitude(b);
    rare |= (x >= y * 0x1p22f) & (y > 0.0f) & (x < INFINITY);
    const float left = ::fmaf(-::truncf(x / y), y, x);
    const float rest = left < 0.0f ? left + y : left;
    return detail::with_sign((y == INFINITY) & (x < INFINITY) ? x : rest, a);
}
inline float modulo(float a, float b, int& rare) {
    const float remainder = fmod(a, b, rare);
    const float moved = (remainder < 0.0f) != (b < 0.0f) ? remainder + b : remainder;
    return remainder == 0.0f ? detail::with_sign(0.0f, b) : moved;
}
inline float floor_divide(float a, float b, int& rare) {
    const float remainder = fmod(a, b, rare);
    const float direct = a / b;
    const bool below = (remainder != 0.0f) & ((remainder < 0.0f) != (b < 0.0f));
    const float quotient = (a - remainder) / b - (below ? 1.0f : 0.0f);  // whole but for rounding
    const float whole = ::floorf(quotient);
    const float nearest = quotient - whole > 0.5f ? whole + 1.0f : whole;
    const float result = quotient == 0.0f ? detail::with_sign(0.0f, direct) : nearest;
    return b == 0.0f ? direct : result;
}

}  // namespace weft
