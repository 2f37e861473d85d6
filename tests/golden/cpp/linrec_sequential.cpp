#include "weft/host.hpp"

// `lanes` rows side by side, from r_0 on
template <int lanes>
static void linrec_rows(const float* __restrict__ x, const float* __restrict__ c, float* __restrict__ y,
        int64_t x_stride_0, int64_t c_stride_0, int64_t y_stride_0, int64_t length, int64_t r_0) {
    float h[lanes];
#pragma omp simd
    for (int w = 0; w < lanes; ++w) {
        h[w] = 0.0f;
    }
    for (int64_t l_0 = 0; l_0 < length; l_0 += weft::tile_steps) {
        const int steps = int(std::min<int64_t>(weft::tile_steps, length - l_0));
        weft::tile<float, lanes> c_tile;
        weft::tile<float, lanes> x_tile;
        weft::tile<float, lanes> y_tile;
        weft::load_tile<lanes>(c_tile, c + r_0 * c_stride_0 + l_0, c_stride_0, steps);
        weft::load_tile<lanes>(x_tile, x + r_0 * x_stride_0 + l_0, x_stride_0, steps);
        for (int step = 0; step < steps; ++step) {
#pragma omp simd
            for (int w = 0; w < lanes; ++w) {
                // linrec_source.py:7: h = c[r, l] * h + x[r, l]
                const float h_1 = c_tile[step][w] * h[w] + x_tile[step][w];
                y_tile[step][w] = h_1;
                h[w] = h_1;
            }
        }
        weft::store_tile<lanes>(y_tile, y + r_0 * y_stride_0 + l_0, y_stride_0, steps);
    }
}

extern "C" int64_t weft_linrec(const weft_slot* slots, int threads) {
    const float* __restrict__ x = static_cast<const float*>(slots[0].pointer);
    const float* __restrict__ c = static_cast<const float*>(slots[1].pointer);
    float* __restrict__ y = static_cast<float*>(slots[2].pointer);
    const int64_t x_stride_0 = slots[3].integer;
    const int64_t c_stride_0 = slots[4].integer;
    const int64_t y_stride_0 = slots[5].integer;
    const int64_t rows = slots[6].integer;
    const int64_t length = slots[7].integer;

    const int64_t block = rows >= 8 * threads ? 8 : 1;
#pragma omp parallel for num_threads(threads) schedule(static) if (rows * length > 32768)
    for (int64_t r_0 = 0; r_0 < rows; r_0 += block) {
        if (block == 8 && r_0 + 8 <= rows) {
            linrec_rows<8>(x, c, y, x_stride_0, c_stride_0, y_stride_0, length, r_0);
        } else {
            for (int64_t r = r_0; r < std::min<int64_t>(r_0 + block, rows); ++r) {
                linrec_rows<1>(x, c, y, x_stride_0, c_stride_0, y_stride_0, length, r);
            }
        }
    }
    return 0;
}
