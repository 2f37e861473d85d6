#include "weft/host.hpp"

// `lanes` rows side by side, from j_0 on
template <int lanes>
static void turned_rows(const float* __restrict__ x, const float* __restrict__ z, float* __restrict__ y,
        int64_t x_stride_0, int64_t z_stride_0, int64_t y_stride_0, int64_t i_from, int64_t i_to, int64_t j_0) {
    for (int64_t i_0 = i_from; i_0 < i_to; i_0 += weft::tile_steps) {
        const int steps = int(std::min<int64_t>(weft::tile_steps, i_to - i_0));
        weft::tile<float, lanes> z_tile;
        weft::load_tile<lanes>(z_tile, z + j_0 * z_stride_0 + i_0, z_stride_0, steps);
        for (int step = 0; step < steps; ++step) {
            const int64_t i = i_0 + step;
#pragma omp simd
            for (int w = 0; w < lanes; ++w) {
                const int64_t j = j_0 + w;
                // test_cpu.py:30: y[i, j] = x[i, j] + z[j, i]
                y[i * y_stride_0 + j] = x[i * x_stride_0 + j] + z_tile[step][w];
            }
        }
    }
}

extern "C" int64_t weft_turned(const weft_slot* slots, int threads) {
    const float* __restrict__ x = static_cast<const float*>(slots[0].pointer);
    const float* __restrict__ z = static_cast<const float*>(slots[1].pointer);
    float* __restrict__ y = static_cast<float*>(slots[2].pointer);
    const int64_t x_stride_0 = slots[3].integer;
    const int64_t z_stride_0 = slots[4].integer;
    const int64_t y_stride_0 = slots[5].integer;
    const int64_t x_size_0 = slots[6].integer;
    const int64_t x_size_1 = slots[7].integer;

    constexpr int block = 16;
#pragma omp parallel for collapse(2) num_threads(threads) schedule(static) if (x_size_0 * x_size_1 > 32768)
    for (int64_t i_from = 0; i_from < x_size_0; i_from += weft::tile_steps) {
        for (int64_t j_0 = 0; j_0 < x_size_1; j_0 += block) {
            const int64_t i_to = std::min<int64_t>(i_from + weft::tile_steps, x_size_0);
            if (j_0 + 16 <= x_size_1) {
                turned_rows<16>(x, z, y, x_stride_0, z_stride_0, y_stride_0, i_from, i_to, j_0);
            } else {
                for (int64_t j = j_0; j < std::min<int64_t>(j_0 + block, x_size_1); ++j) {
                    turned_rows<1>(x, z, y, x_stride_0, z_stride_0, y_stride_0, i_from, i_to, j);
                }
            }
        }
    }
    return 0;
}
