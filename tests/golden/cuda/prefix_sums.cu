#include "weft/memory.cuh"
#include "weft/team.cuh"

// test_emit_cuda.py:52: def prefix_sums(x):
// threads: of the one team, a warp or all the warps of a block
template <int32_t threads>
__device__ __forceinline__ void prefix_sums_rows(
    float* x,
    const int64_t x_size_0) {
    // each thread takes 4 neighbouring columns, 4 times of a tile; tile after tile
    const int32_t thread = threadIdx.x;
    constexpr int32_t tile_columns = threads * 16;
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ weft::Sum<float>::Value float_values[2][threads / 32];
    int32_t turn = 0;
    // test_emit_cuda.py:54: for i in range(x.shape[0]):
    float h_last = 0.0f;
    weft::Run<float, 4> x_next[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t i_run = chunk * threads * 4 + thread * 4;
        if (i_run < x_size_0) {
            // test_emit_cuda.py:55: h = h + x[i]
            x_next[chunk] = weft::fetch<4, 4>(x + i_run);
        }
    }
    for (int32_t tile = 0; tile < x_size_0; tile += tile_columns) {
        float x_tile[4][4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            weft::unpack(x_next[chunk], x_tile[chunk]);
        }
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t i_run = tile + tile_columns + chunk * threads * 4 + thread * 4;
            if (i_run < x_size_0) {
                // test_emit_cuda.py:55: h = h + x[i]
                x_next[chunk] = weft::fetch<4, 4>(x + i_run);
            }
        }
        weft::Sum<float>::Value h_own[4];  // what each run does to h_last
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t i_run = tile + chunk * threads * 4 + thread * 4;
            h_own[chunk] = weft::Sum<float>::identity();
            if (i_run < x_size_0) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // test_emit_cuda.py:55: h = h + x[i]
                    const float x_1 = x_tile[chunk][v];
                    h_own[chunk] = weft::Sum<float>::combine(h_own[chunk], x_1);
                }
            }
        }
        float h_before[4];  // h_last before each run
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const auto h_prefix = weft::scan<weft::Sum<float>, threads, false>(h_own[chunk], float_values[turn ^= 1]);
            h_before[chunk] = h_last + h_prefix.before;
            h_last = h_last + h_prefix.all;
        }
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t i_run = tile + chunk * threads * 4 + thread * 4;
            if (i_run < x_size_0) {
                float h = h_before[chunk];
                float x_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // test_emit_cuda.py:55: h = h + x[i]
                    const float x_1 = x_tile[chunk][v];
                    const float h_1 = h + x_1;
                    // test_emit_cuda.py:56: x[i] = h
                    x_run[v] = h_1;
                    h = h_1;
                }
                weft::store<4>(x + i_run, x_run);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32) prefix_sums_32(
    float* x,
    const int64_t x_size_0) {
    prefix_sums_rows<32>(x, x_size_0);
}

extern "C" __global__ void __launch_bounds__(128) prefix_sums_128(
    float* x,
    const int64_t x_size_0) {
    prefix_sums_rows<128>(x, x_size_0);
}

extern "C" __global__ void __launch_bounds__(256) prefix_sums_256(
    float* x,
    const int64_t x_size_0) {
    prefix_sums_rows<256>(x, x_size_0);
}
