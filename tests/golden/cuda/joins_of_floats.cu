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
    for (int64_t place = tile + threadIdx.x; place < tile_end; place += 256) {
        const int64_t i = place;
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

extern "C" __global__ void __launch_bounds__(256) added_7_sum(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* keys_0_1,
    int32_t* points_0_1,
    int32_t* left_0_0,
    float* sums_0_0,
    const int64_t count) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // a thread has 8 neighbours in the order of keys
    const int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x;
    const int64_t first = place * 8;
    if (first >= count) return;
    const int64_t last = weft::minimum<int64_t>(first + 8, count);
    int32_t key = keys_0_1[first];
    bool before = first > 0 && keys_0_1[first - 1] == key;  // the first sum goes on one of the thread before
    const bool after = last < count && keys_0_1[last] == keys_0_1[last - 1];
    left_0_0[2 * place] = before ? key : -1;
    left_0_0[2 * place + 1] = after ? keys_0_1[last - 1] : -1;
    const auto element = [&](int32_t key) {
        return &y[int64_t(key)];
    };
    float sum = weft::Sum<float>::identity();
    float held = before || uint32_t(key) >= uint32_t(y_size_0) ? 0 : *element(key);
    const auto join = [&] {
        if (uint32_t(key) < uint32_t(y_size_0)) *element(key) = held + sum;
    };
    for (int64_t start = first; start < last; start += 8) {
        int32_t next[8];
        float value[8], old[8];  // joined; held by elements at which sums begin
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            const int64_t at = start + v;
            next[v] = at < last ? keys_0_1[at] : -1;
            value[v] = weft::Sum<float>::identity();
            old[v] = 0;
            if (uint32_t(next[v]) >= uint32_t(y_size_0)) continue;
            if (next[v] != (v == 0 ? key : next[v - 1])) old[v] = *element(next[v]);
            const int64_t i = points_0_1[at];
            // kernels_of_joins.py:41: if x[i] > 0:
            const float x_value = x[i];
            // kernels_of_joins.py:42: y[index[i]] += x[i]
            value[v] = x_value;
        }
        #pragma unroll
        for (int32_t v = 0; v < 8; ++v) {
            if (start + v >= last) break;
            if (next[v] != key) {
                if (before) sums_0_0[2 * place] = sum;
                else join();
                before = false;
                key = next[v];
                held = old[v];
                sum = weft::Sum<float>::identity();
            }
            sum = weft::Sum<float>::combine(sum, value[v]);
        }
    }
    if (before) sums_0_0[2 * place] = sum;
    else if (!after) join();
    if (after) sums_0_0[2 * place + 1] = before ? weft::Sum<float>::identity() : sum;
}

extern "C" __global__ void __launch_bounds__(256) added(
    float* y,
    const int64_t* index,
    const float* x,
    const int64_t y_size_0,
    const int64_t index_size_0,
    int32_t* left_0_0,
    float* sums_0_0,
    const int64_t count) {
    weft::await_launch_before();
    // a thread has 64 neighbours in the order of keys
    const int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x;
    const int64_t first = place * 64;
    if (first >= count) return;
    const int64_t last = weft::minimum<int64_t>(first + 64, count);
    int32_t key = left_0_0[first];
    const auto element = [&](int32_t key) {
        return &y[int64_t(key)];
    };
    float sum = weft::Sum<float>::identity();
    float held = uint32_t(key) >= uint32_t(y_size_0) ? 0 : *element(key);
    const auto join = [&] {
        if (uint32_t(key) < uint32_t(y_size_0)) *element(key) = held + sum;
    };
    for (int64_t start = first; start < last; start += 16) {
        int32_t next[16];
        float value[16], old[16];  // joined; held by elements at which sums begin
        #pragma unroll
        for (int32_t v = 0; v < 16; ++v) {
            const int64_t at = start + v;
            next[v] = at < last ? left_0_0[at] : -1;
            value[v] = weft::Sum<float>::identity();
            old[v] = 0;
            if (uint32_t(next[v]) >= uint32_t(y_size_0)) continue;
            if (next[v] != (v == 0 ? key : next[v - 1])) old[v] = *element(next[v]);
            value[v] = sums_0_0[at];
        }
        #pragma unroll
        for (int32_t v = 0; v < 16; ++v) {
            if (start + v >= last) break;
            if (next[v] != key) {
                join();
                key = next[v];
                held = old[v];
                sum = weft::Sum<float>::identity();
            }
            sum = weft::Sum<float>::combine(sum, value[v]);
        }
    }
    join();
}
