#include "weft/dependent.cuh"
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
    weft::await_launch_before();
    weft::allow_launch_after();
    // a row a block of 64 threads; each thread holds 4 neighbouring points, 4 times
    // what the warps of a row tell each other; two of each, used in turn, so that one barrier does
    __shared__ float float_values[2][2];
    int32_t turn = 0;
    const int64_t r = blockIdx.x;
    const float* x_r = x + r * x_stride_0;
    weft::Run<float, 4> x_tile[4];
    weft::Run<float, 4> weight_tile[4];
    weft::Run<float, 4> bias_tile[4];
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 256 + threadIdx.x * 4;
        // layer_norm.py:26: total = total + x[r, l]
        x_tile[chunk] = weft::fetch_now<4, 4>(x_r + l_run);
        // layer_norm.py:33: y[r, l] = (x[r, l] - mean) * scale * weight[l] + bias[l]
        weight_tile[chunk] = weft::fetch_now<4, 4>(weight + l_run);
        bias_tile[chunk] = weft::fetch_now<4, 4>(bias + l_run);
    }
    __syncwarp();  // all of the row is on its way
    float* y_r = y + r * y_stride_0;
    float total_own = weft::Sum<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        // layer_norm.py:26: total = total + x[r, l]
        float x_run[4];
        weft::unpack(x_tile[chunk], x_run);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // layer_norm.py:25: for l in range(length):
            total_own = weft::Sum<float>::combine(total_own, x_run[v]);
        }
    }
    // layer_norm.py:25: for l in range(length):
    const float total = weft::reduce<weft::Sum<float>, 64>(total_own, float_values[turn ^= 1]);
    // layer_norm.py:27: mean = total / length
    const float mean = total / float(length);
    float squares_own = weft::Sum<float>::identity();
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        // layer_norm.py:26: total = total + x[r, l]
        float x_run_2[4];
        weft::unpack(x_tile[chunk], x_run_2);
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            // layer_norm.py:29: for l in range(length):
            squares_own = weft::fma(x_run_2[v] - mean, x_run_2[v] - mean, squares_own);
        }
    }
    // layer_norm.py:29: for l in range(length):
    const float squares = weft::reduce<weft::Sum<float>, 64>(squares_own, float_values[turn ^= 1]);
    // layer_norm.py:31: scale = torch.rsqrt(squares / length + eps)
    const float scale = weft::rsqrt(squares / float(length) + float(eps));
    #pragma unroll
    for (int32_t chunk = 0; chunk < 4; ++chunk) {
        const int32_t l_run = chunk * 256 + threadIdx.x * 4;
        // layer_norm.py:26: total = total + x[r, l]
        float x_run_3[4];
        weft::unpack(x_tile[chunk], x_run_3);
        // layer_norm.py:33: y[r, l] = (x[r, l] - mean) * scale * weight[l] + bias[l]
        float weight_run[4];
        weft::unpack(weight_tile[chunk], weight_run);
        float bias_run[4];
        weft::unpack(bias_tile[chunk], bias_run);
        float y_run[4];
        #pragma unroll
        for (int32_t v = 0; v < 4; ++v) {
            y_run[v] = weft::fma((x_run_3[v] - mean) * scale, weight_run[v], bias_run[v]);
        }
        weft::store<4>(y_r + l_run, y_run);
    }
}
