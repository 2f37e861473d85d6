#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(64) gated_delta_rule(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    const float* __restrict__ g,
    const weft::bfloat16* __restrict__ beta,
    weft::bfloat16* __restrict__ o,
    const int64_t q_stride_0,
    const int64_t q_stride_1,
    const int64_t q_stride_2,
    const int64_t k_stride_0,
    const int64_t k_stride_1,
    const int64_t k_stride_2,
    const int64_t v_stride_0,
    const int64_t v_stride_1,
    const int64_t v_stride_2,
    const int64_t g_stride_0,
    const int64_t g_stride_1,
    const int64_t beta_stride_0,
    const int64_t beta_stride_1,
    const int64_t o_stride_0,
    const int64_t o_stride_1,
    const int64_t o_stride_2,
    const int64_t batch,
    const int64_t heads,
    const int64_t length,
    const int64_t width,
    const int64_t v_size_3) {
    // a row has 8 threads with 8 neighbouring states each, a block 8 rows
    const int64_t e_blocks = (v_size_3 + 7) / 8;
    const int64_t e_first = int64_t(blockIdx.x % e_blocks) * 8;
    const int64_t e = e_first + threadIdx.y;
    const int64_t b = int64_t(blockIdx.x / e_blocks) / heads;
    const int64_t h = int64_t(blockIdx.x / e_blocks) % heads;
    const weft::bfloat16* q_b_h = q + b * q_stride_0 + h * q_stride_1;
    const weft::bfloat16* k_b_h = k + b * k_stride_0 + h * k_stride_1;
    const weft::bfloat16* v_b_h = v_2 + b * v_stride_0 + h * v_stride_1;
    const float* g_b_h = g + b * g_stride_0 + h * g_stride_1;
    const weft::bfloat16* beta_b_h = beta + b * beta_stride_0 + h * beta_stride_1;
    weft::bfloat16* o_b_h = o + b * o_stride_0 + h * o_stride_1;
    const int64_t d_1_run = threadIdx.x * 8;
    // linear_attention.py:53: for t in range(length):
    float state_before[8];
    #pragma unroll
    for (int32_t v = 0; v < 8; ++v) {
        state_before[v] = 0.0f;
    }
    const int32_t thread = threadIdx.y * 8 + threadIdx.x;
    __shared__ __align__(16) float g_tile[32];
    weft::Packet<float, 1> g_ahead[1];
    __shared__ __align__(16) weft::bfloat16 k_tile[2048];
    weft::Packet<weft::bfloat16, 8> k_ahead[4];
    __shared__ __align__(16) weft::bfloat16 beta_tile[32];
    weft::Packet<weft::bfloat16, 1> beta_ahead[1];
    __shared__ __align__(16) weft::bfloat16 v_tile[256];
    weft::Packet<weft::bfloat16, 1> v_ahead[4];
    __shared__ __align__(16) weft::bfloat16 q_tile[2048];
    weft::Packet<weft::bfloat16, 8> q_ahead[4];
    const auto bring = [&](int64_t first) {
        #pragma unroll
        for (int32_t n = 0; n < 1; ++n) {
            const int32_t item = thread + n * 64;
            const int64_t t_number = first + item;
            const int64_t t_item = t_number;
            g_ahead[n] = {};
            if (item < 32 && t_number < length) g_ahead[n] = *reinterpret_cast<const weft::Packet<float, 1>*>(g_b_h + t_item);
        }
        #pragma unroll
        for (int32_t n = 0; n < 4; ++n) {
            const int32_t item = thread + n * 64;
            const int64_t d_1_item = item % 8 * 8;
            const int64_t t_number_2 = first + item / 8;
            const int64_t t_item_2 = t_number_2;
            k_ahead[n] = {};
            if (t_number_2 < length) k_ahead[n] = *reinterpret_cast<const weft::Packet<weft::bfloat16, 8>*>(k_b_h + t_item_2 * k_stride_2 + d_1_item);
        }
        #pragma unroll
        for (int32_t n = 0; n < 1; ++n) {
            const int32_t item = thread + n * 64;
            const int64_t t_number_3 = first + item;
            const int64_t t_item_3 = t_number_3;
            beta_ahead[n] = {};
            if (item < 32 && t_number_3 < length) beta_ahead[n] = *reinterpret_cast<const weft::Packet<weft::bfloat16, 1>*>(beta_b_h + t_item_3);
        }
        #pragma unroll
        for (int32_t n = 0; n < 4; ++n) {
            const int32_t item = thread + n * 64;
            const int64_t e_item = e_first + item % 8;
            const int64_t t_number_4 = first + item / 8;
            const int64_t t_item_4 = t_number_4;
            v_ahead[n] = {};
            if (t_number_4 < length) v_ahead[n] = *reinterpret_cast<const weft::Packet<weft::bfloat16, 1>*>(v_b_h + t_item_4 * v_stride_2 + e_item);
        }
        #pragma unroll
        for (int32_t n = 0; n < 4; ++n) {
            const int32_t item = thread + n * 64;
            const int64_t d_1_item_2 = item % 8 * 8;
            const int64_t t_number_5 = first + item / 8;
            const int64_t t_item_5 = t_number_5;
            q_ahead[n] = {};
            if (t_number_5 < length) q_ahead[n] = *reinterpret_cast<const weft::Packet<weft::bfloat16, 8>*>(q_b_h + t_item_5 * q_stride_2 + d_1_item_2);
        }
    };
    const auto keep = [&]() {
        #pragma unroll
        for (int32_t n = 0; n < 1; ++n) {
            const int32_t item = thread + n * 64;
            if (item < 32) reinterpret_cast<weft::Packet<float, 1>*>(g_tile)[item] = g_ahead[n];
        }
        #pragma unroll
        for (int32_t n = 0; n < 4; ++n) {
            const int32_t item = thread + n * 64;
            reinterpret_cast<weft::Packet<weft::bfloat16, 8>*>(k_tile)[item] = k_ahead[n];
        }
        #pragma unroll
        for (int32_t n = 0; n < 1; ++n) {
            const int32_t item = thread + n * 64;
            if (item < 32) reinterpret_cast<weft::Packet<weft::bfloat16, 1>*>(beta_tile)[item] = beta_ahead[n];
        }
        #pragma unroll
        for (int32_t n = 0; n < 4; ++n) {
            const int32_t item = thread + n * 64;
            reinterpret_cast<weft::Packet<weft::bfloat16, 1>*>(v_tile)[item] = v_ahead[n];
        }
        #pragma unroll
        for (int32_t n = 0; n < 4; ++n) {
            const int32_t item = thread + n * 64;
            reinterpret_cast<weft::Packet<weft::bfloat16, 8>*>(q_tile)[item] = q_ahead[n];
        }
    };
    bring(0);
    for (int64_t first = 0; first < length; first += 32) {
        keep();
        __syncthreads();
        bring(first + 32);
        const int32_t points = weft::minimum<int64_t>(32, length - first);
        #pragma unroll 4
        for (int32_t point = 0; point < points; ++point) {
            const int64_t t = first + point;
            // linear_attention.py:54: decay = torch.exp(g[b, h, t])
            const float g_value_2 = float(g_tile[point]);
            const float decay = weft::exp(g_value_2);
            // linear_attention.py:57: found += k[b, h, t, d] * state[d]
            float k_run[8];
            weft::unpack(weft::fetch<8, 8>(k_tile + point * 64 + threadIdx.x * 8), k_run);
            // linear_attention.py:56: for d in range(width):
            float found_own = weft::Sum<float>::identity();
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                found_own = weft::fma(k_run[v], state_before[v], found_own);
            }
            const float found = weft::reduce_lanes<weft::Sum<float>, 8>(found_own);
            // linear_attention.py:58: new = beta[b, h, t] * (v[b, h, t, e] - decay * found)
            const float beta_value_2 = float(beta_tile[point]);
            const float v_value_2 = float(v_tile[point * 8 + threadIdx.y]);
            const float new_ = beta_value_2 * weft::fma(-decay, found, v_value_2);
            // linear_attention.py:61: state[d] = decay * state[d] + k[b, h, t, d] * new
            float state_1_run[8];
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                state_1_run[v] = weft::fma(decay, state_before[v], k_run[v] * new_);
            }
            // linear_attention.py:62: total += q[b, h, t, d] * state[d]
            float q_run[8];
            weft::unpack(weft::fetch<8, 8>(q_tile + point * 64 + threadIdx.x * 8), q_run);
            // linear_attention.py:60: for d in range(width):
            float total_own = weft::Sum<float>::identity();
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                total_own = weft::fma(q_run[v], state_1_run[v], total_own);
            }
            const float total = weft::reduce_lanes<weft::Sum<float>, 8>(total_own);
            if (threadIdx.x == 0) {
                // linear_attention.py:63: o[b, h, t, e] = total
                o_b_h[t * o_stride_2 + e] = total;
            }
            #pragma unroll
            for (int32_t v = 0; v < 8; ++v) {
                const float state_before_next = state_1_run[v];
                state_before[v] = state_before_next;
            }
        }
        __syncthreads();
    }
}
