#include "weft/memory.cuh"
#include "weft/team.cuh"

// rms_norm.py:13: def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(128) rms_norm(
    const float* __restrict__ x,
    const float* __restrict__ weight,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    const double eps) {
    // 4 rows a block, a warp each; each thread holds 4 neighbouring points, 8 times
    const int64_t r = int64_t(blockIdx.x) * 4 + threadIdx.y;
    if (r >= rows) return;
    const float* x_r = x + r * x_stride_0;
    weft::Run<float, 4> x_tile[8];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 8; ++chunk) {
        const int32_t l_run = chunk * 128 + threadIdx.x * 4;
        // rms_norm.py:24: squares = squares + x[r, l] * x[r, l]
        x_tile[chunk] = weft::fetch<4, 4>(x_r + l_run);
    }
    float* y_r = y + r * y_stride_0;
    float squares_own = weft::Sum<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 8; ++chunk) {
        // rms_norm.py:24: squares = squares + x[r, l] * x[r, l]
        float x_run[4];
        weft::unpack(x_tile[chunk], x_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // rms_norm.py:23: for l in range(length):
            squares_own = weft::fma(x_run[v], x_run[v], squares_own);
        }
    }
    // rms_norm.py:23: for l in range(length):
    const float squares = weft::reduce<weft::Sum<float>, 32>(squares_own, nullptr);
    // rms_norm.py:25: scale = torch.rsqrt(squares / length + eps)
    const float scale = weft::rsqrt(squares / float(length) + float(eps));
    const float* const weight_row = weft::opaque(weight);
    #pragma unroll
    for (int32_t chunk = 0; chunk < 8; ++chunk) {
        const int32_t l_run = chunk * 128 + threadIdx.x * 4;
        // rms_norm.py:24: squares = squares + x[r, l] * x[r, l]
        float x_run_2[4];
        weft::unpack(x_tile[chunk], x_run_2);
        // rms_norm.py:27: y[r, l] = x[r, l] * scale * weight[l]
        float weight_run[4];
        weft::unpack(weft::fetch<4, 4>(weight_row + l_run), weight_run);
        float y_run[4];
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            y_run[v] = x_run_2[v] * scale * weight_run[v];
        }
        weft::store<4>(y_r + l_run, y_run);
    }
}
