#include "weft/host.hpp"

extern "C" WEFT_WIDEST int64_t weft_rows_of(const weft_slot* slots, int threads) {
    const weft::bfloat16* __restrict__ w = static_cast<const weft::bfloat16*>(slots[0].pointer);
    const int64_t* __restrict__ places = static_cast<const int64_t*>(slots[1].pointer);
    weft::bfloat16* __restrict__ y = static_cast<weft::bfloat16*>(slots[2].pointer);
    const int64_t w_stride_0 = slots[3].integer;
    const int64_t y_stride_0 = slots[4].integer;
    const int64_t w_size_0 = slots[5].integer;
    const int64_t w_size_1 = slots[6].integer;
    const int64_t places_size_0 = slots[7].integer;
    uint64_t outside = 0;

#pragma omp parallel for collapse(2) num_threads(threads) schedule(static) reduction(max : outside) if (places_size_0 * w_size_1 > 32768)
    for (int64_t i = 0; i < places_size_0; ++i) {
        for (int64_t k_0 = 0; k_0 < w_size_1; k_0 += 4096) {
            const int64_t k_end = std::min<int64_t>(k_0 + 4096, w_size_1);
            const int64_t* places_i = places + i;
            weft::bfloat16* y_i = y + i * y_stride_0;
            // test_cpu.py:115: y[i, k] = w[places[i], k]
            const int64_t index = places_i[0];
            const int64_t place = index < 0 ? index + w_size_0 : index;
            const bool inside_w = weft::inside(place, w_size_0, 1, outside);
#pragma omp simd
            for (int64_t k = k_0; k < k_end; ++k) {
                if (inside_w) weft::bits(y_i[k]) = weft::bits(w[place * w_stride_0 + k]);
            }
        }
    }
    return int64_t(outside);
}
