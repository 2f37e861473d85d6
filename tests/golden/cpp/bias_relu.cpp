#include "weft/host.hpp"

extern "C" WEFT_WIDEST int64_t weft_bias_relu(const weft_slot* slots, int threads) {
    const float* __restrict__ x = static_cast<const float*>(slots[0].pointer);
    const float* __restrict__ bias = static_cast<const float*>(slots[1].pointer);
    float* __restrict__ y = static_cast<float*>(slots[2].pointer);
    const int64_t x_stride_0 = slots[3].integer;
    const int64_t y_stride_0 = slots[4].integer;
    const int64_t rows = slots[5].integer;
    const int64_t columns = slots[6].integer;
    const double low = slots[7].number;

#pragma omp parallel for collapse(2) num_threads(threads) schedule(static) if (rows * columns > 32768)
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j_0 = 0; j_0 < columns; j_0 += 4096) {
            const int64_t j_end = std::min<int64_t>(j_0 + 4096, columns);
            const float* x_i = x + i * x_stride_0;
            float* y_i = y + i * y_stride_0;
#pragma omp simd
            for (int64_t j = j_0; j < j_end; ++j) {
                y_i[j] = weft::maximum(x_i[j] + bias[j], float(low));
            }
        }
    }
    return 0;
}
