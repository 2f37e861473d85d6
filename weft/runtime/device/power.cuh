// Exponentials relative to a maximum m as powers of two: e^(x - m) = 2^(slope x - slope m), with a slope above 0.
#pragma once
#include "weft/scalar.cuh"

namespace weft {

// What is taken from slope x: slope m as it is rounded, and what that has lost; both 0 where they are far from 0 or not finite,
// and x - m takes the place of x: the power of the maximum is 1 within 2^-17, or what is rounded of it and what is summed would
// tell two things in 16 bits.
struct MaximumPower {
    float power;
    float lost;
    bool far;
};

WEFT_FUNCTION MaximumPower maximum_power(float m, float slope) {
    const float power = m * slope;
    const bool far = !(absolute(power) < 0x1p8f);
    return {far ? 0.0f : power, far ? 0.0f : fma(m, slope, -power), far};
}

}  // namespace weft
