#include "weft/memory.cuh"
#include "weft/team.cuh"

// layer_norm.py:15: def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
extern "C" __global__ void __launch_bounds__(64) layer_norm(
    const float* __restrict__ x,
    const float* __restrict__ weight,
    const float* __restrict__ bias,
    float* __restrict__ y,
    const int64_t x_stride_0,
    const int64_t y_stride_0,
    const int64_t rows,
    const int64_t length,
    const double eps) {
    // a row a block of 64 threads; each thread holds 4 neighbouring columns, 4 times
    const int32_t thread = threadIdx.x;
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ weft::Sum<float>::Value float_values[2][2];
    int32_t turn = 0;
    weft::Run<float, 4> x_next[4];
    const auto fetch_row = [&](const int64_t r) {
        const float* const x_r = x + r * x_stride_0;
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = chunk * 256 + thread * 4;
            if (l_run < length) {
                // layer_norm.py:26: total = total + x[r, l]
                x_next[chunk] = weft::fetch<4, 4>(x_r + l_run);
            }
        }
    };
    if (blockIdx.x < rows) fetch_row(blockIdx.x);
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        float x_tile[4][4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = chunk * 256 + thread * 4;
            if (l_run < length) {
                weft::unpack(x_next[chunk], x_tile[chunk]);
            }
        }
        if (r + gridDim.x < rows) fetch_row(r + gridDim.x);
        // layer_norm.py:25: for l in range(length):
        float total_partial = weft::Sum<float>::identity();
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_run = chunk * 256 + thread * 4;
            if (l_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    total_partial = weft::Sum<float>::combine(total_partial, x_tile[chunk][v]);
                }
            }
        }
        // layer_norm.py:25: for l in range(length):
        const float total_last = weft::reduce<weft::Sum<float>, 64>(total_partial, float_values[turn ^= 1]);
        // layer_norm.py:27: mean = total / length
        const float mean = total_last / float(length);
        // layer_norm.py:29: for l in range(length):
        float squares_partial = weft::Sum<float>::identity();
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_1_run = chunk * 256 + thread * 4;
            if (l_1_run < length) {
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    squares_partial = weft::fma(x_tile[chunk][v] - mean, x_tile[chunk][v] - mean, squares_partial);
                }
            }
        }
        // layer_norm.py:29: for l in range(length):
        const float squares_last = weft::reduce<weft::Sum<float>, 64>(squares_partial, float_values[turn ^= 1]);
        // layer_norm.py:31: scale = torch.rsqrt(squares / length + eps)
        const float scale = weft::rsqrt(squares_last / float(length) + float(eps));
        const float* const weight_row = weft::opaque(weight);
        const float* const bias_row = weft::opaque(bias);
        float* const y_r = y + r * y_stride_0;
        float weight_tile[4][4];
        float bias_tile[4][4];
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_2_run = chunk * 256 + thread * 4;
            if (l_2_run < length) {
                // layer_norm.py:33: y[r, l] = (x[r, l] - mean) * scale * weight[l] + bias[l]
                weft::unpack(weft::fetch<4, 4>(weight_row + l_2_run), weight_tile[chunk]);
                weft::unpack(weft::fetch<4, 4>(bias_row + l_2_run), bias_tile[chunk]);
            }
        }
        #pragma unroll
        for (int32_t chunk = 0; chunk < 4; ++chunk) {
            const int32_t l_2_run = chunk * 256 + thread * 4;
            if (l_2_run < length) {
                float y_run[4];
                #pragma unroll
                for (int32_t v = 0; v < 4; ++v) {
                    // layer_norm.py:33: y[r, l] = (x[r, l] - mean) * scale * weight[l] + bias[l]
                    y_run[v] = weft::fma((x_tile[chunk][v] - mean) * scale, weight_tile[chunk][v], bias_tile[chunk][v]);
                }
                weft::store<4>(y_r + l_2_run, y_run);
            }
        }
    }
}
