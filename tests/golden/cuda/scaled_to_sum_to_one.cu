#include "weft/dependent.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

// test_emit_cuda.py:48: def scaled_to_sum_to_one(g):
extern "C" __global__ void __launch_bounds__(8) scaled_to_sum_to_one(
    float* g,
    const int64_t g_size_0) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // a row a block of 8 threads; each thread holds 4 neighbouring points, 4 times
    weft::Run<float, 4> g_tile[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t i_run = chunk * 32 + threadIdx.x * 4;
        if (i_run < g_size_0) {
            // test_emit_cuda.py:51: s = s + g[i]
            g_tile[chunk] = weft::fetch<4, 4>(g + i_run);
        }
    }
    float s_own = weft::Sum<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t i_run = chunk * 32 + threadIdx.x * 4;
        if (i_run < g_size_0) {
            // test_emit_cuda.py:51: s = s + g[i]
            float g_run[4];
            weft::unpack(g_tile[chunk], g_run);
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // test_emit_cuda.py:50: for i in range(g.shape[0]):
                s_own = weft::Sum<float>::combine(s_own, g_run[v]);
            }
        }
    }
    // test_emit_cuda.py:50: for i in range(g.shape[0]):
    const float s = weft::reduce<weft::Sum<float>, 8>(s_own, nullptr);
    const weft::Divisor<float> s_divisor(s);
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t i_run = chunk * 32 + threadIdx.x * 4;
        if (i_run < g_size_0) {
            // test_emit_cuda.py:51: s = s + g[i]
            float g_run_2[4];
            weft::unpack(g_tile[chunk], g_run_2);
            float g_run_3[4];
            #pragma unroll
            for (int32_t v = 0; v < 4; ++v) {
                // test_emit_cuda.py:53: g[i] = g[i] / s
                const float g_1 = weft::divide(g_run_2[v], s_divisor);
                g_run_3[v] = g_1;
            }
            weft::store<4>(g + i_run, g_run_3);
        }
    }
}
