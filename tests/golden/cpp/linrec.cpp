#include "weft/host.hpp"

extern "C" int64_t weft_linrec(const weft_slot* slots, int threads) {
    const float* __restrict__ x = static_cast<const float*>(slots[0].pointer);
    const float* __restrict__ c = static_cast<const float*>(slots[1].pointer);
    float* __restrict__ y = static_cast<float*>(slots[2].pointer);
    const int64_t x_stride_0 = slots[3].integer;
    const int64_t c_stride_0 = slots[4].integer;
    const int64_t y_stride_0 = slots[5].integer;
    const int64_t rows = slots[6].integer;
    const int64_t length = slots[7].integer;

#pragma omp parallel for num_threads(threads) schedule(static) if (rows * length > 32768)
    for (int64_t r = 0; r < rows; ++r) {
        const float* x_r = x + r * x_stride_0;
        const float* c_r = c + r * c_stride_0;
        float* y_r = y + r * y_stride_0;
        float h = 0.0f;
        constexpr int width = weft::scan_lanes<float>;
        int64_t l_0 = 0;
        for (; l_0 + width <= length; l_0 += width) {
            float h_coefficient[width], h_addend[width], h_before[width];
#pragma omp simd
            for (int w = 0; w < width; ++w) {
                const int64_t l = l_0 + w;
                h_coefficient[w] = c_r[l];
                h_addend[w] = x_r[l];
            }
            if (!weft::scan_affine(h_coefficient, h_addend, h, h_before)) {
                h = h_before[0];
                break;
            }
#pragma omp simd
            for (int w = 0; w < width; ++w) {
                const int64_t l = l_0 + w;
                // linrec_source.py:7: h = c[r, l] * h + x[r, l]
                const float h_1 = c_r[l] * h_before[w] + x_r[l];
                y_r[l] = h_1;
            }
        }
        for (int64_t l = l_0; l < length; ++l) {
            // linrec_source.py:7: h = c[r, l] * h + x[r, l]
            const float h_1 = c_r[l] * h + x_r[l];
            y_r[l] = h_1;
            h = h_1;
        }
    }
    return 0;
}
