#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(128) selective_scan(
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
    const bool here = int64_t(blockIdx.x % d_blocks) * 4 + threadIdx.y < dim;  // else the last row is looked at again
    const int64_t d = weft::minimum<int64_t>(int64_t(blockIdx.x % d_blocks) * 4 + threadIdx.y, dim - 1);
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
        const float* const h_before_now = h_before_kept + (tile & 1) * 4 * state_count;
        float* const h_before_next = h_before_kept + ((tile + 1) & 1) * 4 * state_count;
        // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
        float u_tile[8];
        weft::unpack(weft::fetch<8, 4>(u_i_d + t_first), u_tile);
        float dt_tile[8];
        {
            // kernels_of_states.py:20: dt = F.softplus(delta[i, d, t])
            float delta_tile[8];
            weft::unpack(weft::fetch<8, 4>(delta_i_d + t_first), delta_tile);
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                dt_tile[k] = delta_tile[k] > 20.0f ? delta_tile[k] : weft::log1p(weft::exp(delta_tile[k]));
            }
        }
        weft::Sum<float>::Value total_own[8];
        #pragma unroll
        for (int32_t k = 0; k < 8; ++k) total_own[k] = weft::Sum<float>::identity();
        for (int32_t n = 0; n < state_count; ++n) {
            // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
            const float a_value = a_d[n];
            float b_tile[8];
            weft::unpack(weft::fetch<8, 4>(b_i + n * b_stride_1 + t_first), b_tile);
            // kernels_of_states.py:24: total += h[n] * c[i, n, t]
            float c_tile[8];
            weft::unpack(weft::fetch<8, 4>(c_i + n * c_stride_1 + t_first), c_tile);
            float exp_tile[8];
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                exp_tile[k] = weft::exp_flushed(dt_tile[k] * a_value);
            }
            // kernels_of_states.py:19: for t in range(length):
            const float h_before_start = h_before_now[n];
            auto h_before_own = weft::Affine<float>::identity();  // what the thread's points do to h_before
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                h_before_own = weft::Affine<float>::combine(h_before_own, {exp_tile[k], dt_tile[k] * b_tile[k] * u_tile[k]});
            }
            const auto h_before_composed = weft::scan_through<weft::Affine<float>, 32, false>(h_before_own, nullptr);
            float h_before_after = h_before_start;
            weft::Affine<float>::apply(h_before_composed.all, h_before_after);
            float h_before_before = weft::from_lane_before<32, false>(h_before_after, h_before_start);
            // what overflows when points are composed is computed in their order
            if (!weft::all_of_team<32>(weft::is_finite(h_before_after)) && !weft::is_nan(h_before_start)) {
                const auto change = [&](float& h_before) {
                    #pragma unroll
                    for (int32_t k = 0; k < 8; ++k) {
                        // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                        const float h_1 = weft::fma(exp_tile[k], h_before, dt_tile[k] * b_tile[k] * u_tile[k]);
                        h_before = h_1;
                    }
                };
                const auto keep = [&](float& h_before) { h_before_before = h_before; };
                h_before_after = h_before_start;
                weft::in_turn<32, false>(change, keep, h_before_after);
            }
            if (threadIdx.x == 31) h_before_next[n] = h_before_after;
            #pragma unroll
            for (int32_t k = 0; k < 8; ++k) {
                // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                const float h_1_2 = weft::fma(exp_tile[k], h_before_before, dt_tile[k] * b_tile[k] * u_tile[k]);
                // kernels_of_states.py:22: for n in range(states):
                total_own[k] = weft::fma(h_1_2, c_tile[k], total_own[k]);
                h_before_before = h_1_2;
            }
        }
        // kernels_of_states.py:25: y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
        float z_tile[8];
        weft::unpack(weft::fetch<8, 4>(weft::opaque(z_i_d + t_first)), z_tile);
        float y_run[8];
        #pragma unroll
        for (int32_t k = 0; k < 8; ++k) {
            const float total = 0.0f + total_own[k];
            y_run[k] = weft::fma(skip_value, u_tile[k], total) * (z_tile[k] * weft::sigmoid(z_tile[k]));
        }
        if (here) weft::store<4>(y_i_d + t_first, y_run);
        weft::sync_team<32>();
    }
}
