#include "weft/memory.cuh"

// gelu_bias_residual.py:15: def gelu_bias_residual(x: torch.Tensor, bias: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(256) gelu_bias_residual(
    const float* __restrict__ x,
    const float* __restrict__ bias,
    const float* __restrict__ residual,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t residual_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length) {
    // each thread takes 4 neighbouring columns, 2 times; blocks share the columns of a row
    const int32_t thread = threadIdx.x;
    const int32_t threads = blockDim.x;
    const int32_t tile_columns = threads * 8;
    for (int64_t r = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; r < rows; r += int64_t(gridDim.x) * blockDim.y) {
        const float* const x_r = x + r * x_stride_0;
        const float* const residual_r = residual + r * residual_stride_0;
        float* const y_r = y + r * y_stride_0;
        for (int32_t tile = blockIdx.y * tile_columns; tile < length; tile += gridDim.y * tile_columns) {
            float x_tile[2][4];
            float bias_tile[2][4];
            float residual_tile[2][4];
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                if (l_run < length) {
                    // gelu_bias_residual.py:25: z = x[r, l] + bias[l]
                    weft::unpack(weft::fetch<4, 4>(x_r + l_run), x_tile[chunk]);
                    weft::unpack(weft::fetch<4, 4>(bias + l_run), bias_tile[chunk]);
                    // gelu_bias_residual.py:26: y[r, l] = 0.5 * z * (1.0 + torch.erf(z * math.sqrt(0.5))) + residual[r, l]
                    weft::unpack(weft::fetch<4, 4>(residual_r + l_run), residual_tile[chunk]);
                }
            }
            #pragma unroll
            for (int32_t chunk = 0; chunk < 2; ++chunk) {
                const int32_t l_run = tile + chunk * threads * 4 + thread * 4;
                if (l_run < length) {
                    float y_run[4];
                    #pragma unroll
                    for (int32_t v = 0; v < 4; ++v) {
                        // gelu_bias_residual.py:25: z = x[r, l] + bias[l]
                        const float z = x_tile[chunk][v] + bias_tile[chunk][v];
                        // gelu_bias_residual.py:26: y[r, l] = 0.5 * z * (1.0 + torch.erf(z * math.sqrt(0.5))) + residual[r, l]
                        y_run[v] = weft::fma(0.5f * z, 1.0f + weft::erf(z * 0.70710677f), residual_tile[chunk][v]);
                    }
                    weft::store<4>(y_r + l_run, y_run);
                }
            }
        }
    }
}
