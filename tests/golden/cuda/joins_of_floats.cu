#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/sort.cuh"

extern "C" __global__ void __launch_bounds__(256) added_1_keys(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* __restrict__ keys_0_0,
    int32_t* __restrict__ counts_0,
    const int64_t count) {
    weft::allow_launch_after();
    int64_t outside = 0;
    __shared__ int32_t digits[256];
    weft::begin_digits(digits);
    const int64_t tile = int64_t(blockIdx.x) * 1024;
    const int64_t tile_end = weft::minimum<int64_t>(tile + 1024, count);
    #pragma unroll 4
    const uint32_t i_count = index_size_0;
    for (int64_t place = tile + threadIdx.x; place < tile_end; place += 256) {
        const int64_t i = uint32_t(place);
        // kernels_of_joins.py:41: if x[i] > 0:
        const float x_value = x[i];
        // kernels_of_joins.py:42: y[index[i]] += x[i]
        const int64_t index_value = index[i];
        int32_t key = int32_t(y_size_0);  // behind all others: nothing is joined
        if (x_value > 0.0f) {
            const int64_t y_at = index_value < 0 ? weft::wrapping_add(index_value, y_size_0) : index_value;
            if (weft::inside(y_at, y_size_0, 1, outside)) key = int32_t(y_at);
        }
        keys_0_0[place] = key;
        weft::count_digit<0>(digits, key);
    }
    weft::leave_digits(digits, counts_0);
    if (outside) __trap();  // a subscript or a value that the data decide is out of its range
}

extern "C" __global__ void __launch_bounds__(256) added_2_move(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* keys_0_0,
    int32_t* counts_0,
    int32_t* keys_0_1,
    int32_t* points_0_1,
    const int64_t count) {
    weft::await_launch_before();
    weft::allow_launch_after();
    weft::move_by_digit<0, 4, true>(keys_0_0, nullptr, count, counts_0, nullptr, keys_0_1, points_0_1);
}

extern "C" __global__ void __launch_bounds__(256) added_3_count(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* keys_0_1,
    int32_t* counts_0,
    const int64_t count) {
    weft::await_launch_before();
    weft::allow_launch_after();
    weft::count_digits<8, 4>(keys_0_1, count, counts_0);
}

extern "C" __global__ void __launch_bounds__(256) added_4_move(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* keys_0_1,
    int32_t* points_0_1,
    int32_t* counts_0,
    int32_t* keys_0_0,
    int32_t* points_0_0,
    const int64_t count) {
    weft::await_launch_before();
    weft::allow_launch_after();
    weft::move_by_digit<8, 4, true>(keys_0_1, points_0_1, count, counts_0, nullptr, keys_0_0, points_0_0);
}

extern "C" __global__ void __launch_bounds__(256) added_5_count(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* keys_0_0,
    int32_t* counts_0,
    const int64_t count) {
    weft::await_launch_before();
    weft::allow_launch_after();
    weft::count_digits<16, 4>(keys_0_0, count, counts_0);
}

extern "C" __global__ void __launch_bounds__(256) added_6_move(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* keys_0_0,
    int32_t* points_0_0,
    int32_t* counts_0,
    int32_t* keys_0_1,
    int32_t* points_0_1,
    const int64_t count) {
    weft::await_launch_before();
    weft::allow_launch_after();
    weft::move_by_digit<16, 4, true>(keys_0_0, points_0_0, count, counts_0, nullptr, keys_0_1, points_0_1);
}

extern "C" __global__ void __launch_bounds__(256) added(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* keys_0_1,
    int32_t* points_0_1,
    const int64_t count) {
    weft::await_launch_before();
    // a warp has 128 neighbours in the order of keys, a thread one at a time
    const uint32_t i_count = index_size_0;
    const int64_t warp = int64_t(blockIdx.x) * 8 + threadIdx.x / 32;
    const int64_t chunks = (count + 127) / 128;
    const int64_t chunk = warp;
    if (chunk >= chunks) return;
    const int64_t cut = chunk * 128, next_cut = weft::minimum<int64_t>(cut + 128, count);
    // a sum that goes on beyond a cut is the warp's before it; one that goes on far beyond is cut
    const int32_t beyond = weft::keys_beyond(keys_0_1, cut, count);
    const int32_t next_beyond = weft::keys_beyond(keys_0_1, next_cut, count);
    const int64_t first = beyond < 32 ? cut + beyond : cut;
    const int64_t last = next_beyond < 32 ? next_cut + next_beyond : next_cut;
    float carried[1];  // what earlier points of the warp sum to, of the last one's key
    int32_t carried_key = -1;
    for (int64_t start = first; start < last; start += 32) {
        const int64_t at = start + threadIdx.x % 32;
        const int32_t key = at < last ? keys_0_1[at] : -1;
        const int32_t next = at + 1 < count ? keys_0_1[at + 1] : -1;
        const bool here = uint32_t(key) < uint32_t(y_size_0);  // else nothing is joined
        if (!__any_sync(0xffffffffu, here)) {
            carried_key = -1;
            continue;
        }
        const bool ends = here && (next != key || at + 1 == last);  // a sum
        float* const element = &y[int64_t(uint32_t(key))];  // of the first lane
        float value[1], old[1];
        #pragma unroll
        for (int32_t v = 0; v < 1; ++v) {
            value[v] = weft::Sum<float>::identity();
            old[v] = 0;
        }
        if (here) {
            const int64_t i = points_0_1[at];
            // kernels_of_joins.py:41: if x[i] > 0:
            const float x_value = x[i];
            #pragma unroll
            for (int32_t v = 0; v < 1; ++v) {
                // kernels_of_joins.py:42: y[index[i]] += x[i]
                value[v] = x_value;
                if (ends) old[v] = *element;
            }
        }
        const weft::Neighbours same = weft::neighbours_of(key);
        #pragma unroll
        for (int32_t v = 0; v < 1; ++v) {
            float sum = weft::combine_neighbours<weft::Sum<float>>(value[v], same);
            if (here && key == carried_key) sum = weft::Sum<float>::combine(carried[v], sum);
            carried[v] = weft::shuffle(sum, 31, 32);
            if (ends) {
                *element = old[v] + sum;
            }
        }
        carried_key = weft::shuffle(key, 31, 32);
    }
}
