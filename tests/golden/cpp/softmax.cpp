#include "weft/host.hpp"

#pragma omp declare reduction(python_max : float : omp_out = weft::python_max(omp_out, omp_in)) initializer(omp_priv = -INFINITY)

extern "C" int64_t weft_softmax(const weft_slot* slots, int threads) {
    const float* __restrict__ x = static_cast<const float*>(slots[0].pointer);
    float* __restrict__ y = static_cast<float*>(slots[1].pointer);
    const int64_t x_stride_0 = slots[2].integer;
    const int64_t y_stride_0 = slots[3].integer;
    const int64_t rows = slots[4].integer;
    const int64_t length = slots[5].integer;

#pragma omp parallel for num_threads(threads) schedule(static) if (rows * length > 32768)
    for (int64_t r = 0; r < rows; ++r) {
        const float* x_r = x + r * x_stride_0;
        float* y_r = y + r * y_stride_0;
        float m = -INFINITY;
#pragma omp simd reduction(python_max : m)
        for (int64_t i = 0; i < length; ++i) {
            const float m_i = weft::python_max(m, x_r[i]);
            m = m_i;
        }
        float s = 0.0f;
#pragma omp simd reduction(+ : s)
        for (int64_t j = 0; j < length; ++j) {
            const float s_j = s + weft::exp(x_r[j] - m);
            s = s_j;
        }
#pragma omp simd
        for (int64_t k = 0; k < length; ++k) {
            y_r[k] = weft::exp(x_r[k] - m) / s;
        }
    }
    return 0;
}
