#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/latest.cuh"

extern "C" __global__ void __launch_bounds__(256) stored_rows_1_keys(
    weft::bfloat16* x,
    const int64_t* k,
    const weft::bfloat16* v_2,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t x_size_2,
    const int64_t k_size_0,
    int32_t* __restrict__ keys_0_0,
    int32_t* __restrict__ last_0,
    const int64_t count) {
    weft::allow_launch_after();
    int64_t outside = 0;
    const uint32_t i_count = k_size_0;
    for (int64_t place = int64_t(blockIdx.x) * 256 + threadIdx.x; place < count; place += int64_t(gridDim.x) * 256) {
        const int64_t i = uint32_t(place);
        // kernels_of_joins.py:117: x[k[i], h, d] = v[i, h, d]
        const int64_t k_value = k[i];
        int32_t key = 0;
        const int64_t x_at_0 = k_value < 0 ? weft::wrapping_add(k_value, x_size_0) : k_value;
        if (weft::inside(x_at_0, x_size_0, 1, outside)) key = int32_t(x_at_0);
        keys_0_0[place] = key;
        weft::store_relaxed<weft::Scope::gpu>(last_0 + key, -1);  // as others of the key do
    }
    if (outside) __trap();  // a subscript or a value that the data decide is out of its range
}

extern "C" __global__ void __launch_bounds__(256) stored_rows_2_last(
    weft::bfloat16* x,
    const int64_t* k,
    const weft::bfloat16* v_2,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t x_size_2,
    const int64_t k_size_0,
    int32_t* keys_0_0,
    int32_t* last_0,
    const int64_t count) {
    weft::await_launch_before();
    weft::last_points(keys_0_0, count, int32_t(x_size_0), last_0);
}

extern "C" __global__ void __launch_bounds__(128) stored_rows(
    weft::bfloat16* x,
    const int64_t* k,
    const weft::bfloat16* v_2,
    const int64_t x_stride_0,
    const int64_t x_stride_1,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t x_size_0,
    const int64_t x_size_1,
    const int64_t x_size_2,
    const int64_t k_size_0,
    const int32_t* __restrict__ keys_0_0,
    const int32_t* __restrict__ last_0,
    const int64_t count) {
    // each thread takes 8 neighbours along (h, d), which are counted as one
    const int64_t i = int64_t(blockIdx.x) * 8 + threadIdx.y;
    if (i >= k_size_0) return;
    // kernels_of_joins.py:117: x[k[i], h, d] = v[i, h, d]
    const int32_t own_read = keys_0_0[i];
    const int64_t own_key = int64_t(own_read);
    const int32_t own_last_of_key = last_0[own_key];
    const weft::bfloat16* const v_i = v_2 + i * v_stride_0;
    weft::bfloat16* const x_i = x + own_key * x_stride_0;
    const int64_t h_d_count = x_size_1 * x_size_2;
    const int64_t h_d_run = threadIdx.x * 8;
    if (h_d_run >= h_d_count) return;
    weft::Run<weft::bfloat16, 8> v_tile;
    v_tile = weft::fetch<8, 8>(v_i + h_d_run);
    if (!(int64_t(own_last_of_key) == i)) return;
    weft::store<8>(x_i + h_d_run, v_tile);
}
