#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(128, 7) selective_scan(
    const float* __restrict__ u,
    const float* __restrict__ delta,
    const float* __restrict__ a,
    const float* __restrict__ b,
    const float* __restrict__ c,
    const float* __restrict__ skip,
    const float* __restrict__ z,
    float* __restrict__ y_2,
    const int64_t u_stride_0,
    const int64_t u_stride_1,
    const int64_t delta_stride_0,
    const int64_t delta_stride_1,
    const int64_t a_stride_0,
    const int64_t b_stride_0,
    const int64_t b_stride_1,
    const int64_t c_stride_0,
    const int64_t c_stride_1,
    const int64_t z_stride_0,
    const int64_t z_stride_1,
    const int64_t y_stride_0,
    const int64_t y_stride_1,
    const int64_t batch,
    const int64_t dim,
    const int64_t length,
    const int64_t states) {
    // 32 threads a row, each with 8 neighbours of a tile of 256 points
    const int64_t d_blocks = (dim + 3) / 4;
    const int64_t d = int64_t(blockIdx.x % d_blocks) * 4 + threadIdx.y;
    const int64_t i = int64_t(blockIdx.x / d_blocks);
    const float* u_i_d = u + i * u_stride_0 + d * u_stride_1;
    const float* delta_i_d = delta + i * delta_stride_0 + d * delta_stride_1;
    const float* a_d = a + d * a_stride_0;
    const float* b_i = b + i * b_stride_0;
    const float* c_i = c + i * c_stride_0;
    const float* skip_d = skip + d;
    const float* z_i_d = z + i * z_stride_0 + d * z_stride_1;
    float* y_i_d = y_2 + i * y_stride_0 + d * y_stride_1;
    // kernels_of_states.py:25: y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
    const float skip_value = skip_d[0];
    const int32_t state_count = states;
    extern __shared__ __align__(16) unsigned char memory[];
    float* const h_before_kept = reinterpret_cast<float*>(memory) + threadIdx.y * state_count;
    for (int32_t n = threadIdx.x; n < state_count; n += 32) {
        // kernels_of_states.py:19: for t in range(length):
        h_before_kept[n] = 0.0f;
    }
    weft::sync_team<32>();
    const int64_t tiles = (length + 255) / 256;
    for (int64_t tile = 0; tile < tiles; ++tile) {
        const int32_t t_first = tile * 256 + threadIdx.x * 8;
        float dt_tile[8];
        float dt_u_tile[8];
        {
            // kernels_of_states.py:20: dt = F.softplus(delta[i, d, t])
            float delta_tile[8];
            weft::unpack(weft::fetch<8, 4>(delta_i_d + t_first), delta_tile);
            // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
            float u_tile[8];
            weft::unpack(weft::fetch<8, 4>(u_i_d + t_first), u_tile);
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                // kernels_of_states.py:20: dt = F.softplus(delta[i, d, t])
                dt_tile[k] = weft::opaque(delta_tile[k] > 20.0f ? delta_tile[k] : weft::log1p(weft::exp(delta_tile[k])));
                // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                dt_u_tile[k] = weft::opaque(dt_tile[k] * u_tile[k]);
            }
        }
        float h_before_powers = 0.0f;
        #pragma unroll
        for (int32_t k = 0; k < 8; ++k) {
            h_before_powers = h_before_powers + dt_tile[k];
        }
        h_before_powers = weft::opaque(h_before_powers);
        weft::Sum<float>::Value total_own[8];
        #pragma unroll
        for (int32_t k = 0; k < 8; ++k) total_own[k] = weft::Sum<float>::identity();
        const float* a_at = a_d + 0;
        const float* b_at = b_i + t_first;
        const float* c_at = c_i + t_first;
        const int32_t h_before_now = weft::opaque(int32_t((tile & 1) * 4 * state_count));
        const int32_t h_before_next = weft::opaque(int32_t(((tile + 1) & 1) * 4 * state_count));
        for (int32_t n = 0; n < state_count; ++n) {
            // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
            const float a_value = a_at[0];
            const float rate = a_value * 1.442695f;
            float b_tile[8];
            weft::unpack(weft::fetch<8, 4>(b_at), b_tile);
            // kernels_of_states.py:24: total += h[n] * c[i, n, t]
            float c_tile[8];
            weft::unpack(weft::fetch<8, 4>(c_at), c_tile);
            float exp_tile[8];
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                exp_tile[k] = weft::exp2_estimate(dt_tile[k] * rate);
            }
            // kernels_of_states.py:19: for t in range(length):
            const float h_before_start = h_before_kept[h_before_now + n];
            float h_before_own = threadIdx.x == 0 ? h_before_start : 0.0f;  // what the thread's points make of it
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                const float h_1 = weft::fma(exp_tile[k], h_before_own, dt_u_tile[k] * b_tile[k]);
                h_before_own = h_1;
            }
            weft::Affine<float>::Value h_before_through = {threadIdx.x == 0 ? 0.0f : weft::exp2_estimate(h_before_powers * rate), h_before_own};
            weft::states_through<32, false>(h_before_through);
            float h_before_after = h_before_through.addend;
            float h_before_before = weft::from_lane_before<32, false>(h_before_after, h_before_start);
            // what overflows when points are composed is computed in their order
            if (!weft::all_of_team<32>(weft::is_finite(h_before_after))) {
                if (!weft::is_nan(h_before_start)) {
                    const auto change = [&](float& h_before) {
                        #pragma unroll
                        for (int32_t k = 0; k < 8; ++k) {
                            // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                            const float h_1_2 = weft::fma(exp_tile[k], h_before, dt_u_tile[k] * b_tile[k]);
                            h_before = h_1_2;
                        }
                    };
                    const auto keep = [&](float& h_before) { h_before_before = h_before; };
                    h_before_after = h_before_start;
                    weft::in_turn<32, false>(change, keep, h_before_after);
                }
            }
            if (threadIdx.x == 31) h_before_kept[h_before_next + n] = h_before_after;
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                const float h_1_3 = weft::fma(exp_tile[k], h_before_before, dt_u_tile[k] * b_tile[k]);
                // kernels_of_states.py:22: for n in range(states):
                total_own[k] = weft::fma(h_1_3, c_tile[k], total_own[k]);
                h_before_before = h_1_3;
            }
            a_at += 1;
            b_at += b_stride_1;
            c_at += c_stride_1;
        }
        // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
        float u_tile[8];
        weft::unpack(weft::fetch<8, 4>(weft::opaque(u_i_d + t_first)), u_tile);
        // kernels_of_states.py:25: y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
        float z_tile[8];
        weft::unpack(weft::fetch<8, 4>(weft::opaque(z_i_d + t_first)), z_tile);
        float y_run[8];
        #pragma unroll
        for (int32_t k = 0; k < 8; ++k) {
            const float total = 0.0f + total_own[k];
            y_run[k] = weft::fma(skip_value, u_tile[k], total) * (z_tile[k] * weft::sigmoid(z_tile[k]));
        }
        weft::store<4>(y_i_d + t_first, y_run);
        weft::sync_team<32>();
    }
}
