#include "weft/async.cuh"
#include "weft/memory.cuh"
#include "weft/team.cuh"

extern "C" __global__ void __launch_bounds__(128, 4) selective_scan(
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
    // 32 threads a row, each with 16 neighbours of a tile of 512 points
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
    float* const b_ring = reinterpret_cast<float*>(memory);
    float* const c_ring = reinterpret_cast<float*>(memory + 4096);
    float* const h_before_kept = reinterpret_cast<float*>(memory + 8192) + threadIdx.y * state_count;
    for (int32_t n = threadIdx.x; n < state_count; n += 32) {
        // kernels_of_states.py:19: for t in range(length):
        h_before_kept[n] = 0.0f;
    }
    weft::sync_team<32>();
    const int64_t tiles = (length + 511) / 512;
    for (int64_t tile = 0; tile < tiles; ++tile) {
        const int32_t t_first = tile * 512 + threadIdx.x * 16;
        const int32_t b_packet = threadIdx.y * 32 + threadIdx.x;
        const float* b_from = b_i + tile * 512 + b_packet * 4;
        const int32_t own_place = weft::opaque(int32_t(weft::packet_place<4>(threadIdx.x * 4) * 4));
        const int32_t c_packet = threadIdx.y * 32 + threadIdx.x;
        const float* c_from = c_i + tile * 512 + c_packet * 4;
        if (0 < state_count) {
            weft::copy_async<16>(b_ring + (0 & 1) * 512 + weft::packet_place<4>(b_packet) * 4, b_from);
            b_from += b_stride_1;
            weft::copy_async<16>(c_ring + (0 & 1) * 512 + weft::packet_place<4>(c_packet) * 4, c_from);
            c_from += c_stride_1;
        }
        weft::commit_copies();
        if (1 < state_count) {
            weft::copy_async<16>(b_ring + (1 & 1) * 512 + weft::packet_place<4>(b_packet) * 4, b_from);
            b_from += b_stride_1;
            weft::copy_async<16>(c_ring + (1 & 1) * 512 + weft::packet_place<4>(c_packet) * 4, c_from);
            c_from += c_stride_1;
        }
        weft::commit_copies();
        float dt_tile[16];
        float dt_u_tile[16];
        {
            // kernels_of_states.py:20: dt = F.softplus(delta[i, d, t])
            float delta_tile[16];
            weft::unpack(weft::fetch<16, 4>(delta_i_d + t_first), delta_tile);
            // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
            float u_tile[16];
            weft::unpack(weft::fetch<16, 4>(u_i_d + t_first), u_tile);
            #pragma unroll
            for (int32_t k = 0; k < 16; ++k) {
                // kernels_of_states.py:20: dt = F.softplus(delta[i, d, t])
                dt_tile[k] = weft::opaque(delta_tile[k] > 20.0f ? delta_tile[k] : weft::log1p(weft::exp(delta_tile[k])));
                // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                dt_u_tile[k] = weft::opaque(dt_tile[k] * u_tile[k]);
            }
        }
        float h_before_powers = 0.0f;
        #pragma unroll
        for (int32_t k = 0; k < 16; ++k) {
            h_before_powers = h_before_powers + dt_tile[k];
        }
        h_before_powers = weft::opaque(h_before_powers);
        weft::Sum<float>::Value total_own[16];
        #pragma unroll
        for (int32_t k = 0; k < 16; ++k) total_own[k] = weft::Sum<float>::identity();
        const float* a_at = a_d + 0;
        const int32_t h_before_now = weft::opaque(int32_t((tile & 1) * 4 * state_count));
        const int32_t h_before_next = weft::opaque(int32_t(((tile + 1) & 1) * 4 * state_count));
        weft::wait_copies<1>();
        __syncthreads();
        for (int32_t n = 0; n < state_count; ++n) {
            // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
            const float a_value = a_at[0];
            const float rate = a_value * 1.442695f;
            float b_tile[16];
            weft::unpack(weft::fetch_packets<16>(b_ring, (n & 1) * 512 + own_place), b_tile);
            // kernels_of_states.py:24: total += h[n] * c[i, n, t]
            float c_tile[16];
            weft::unpack(weft::fetch_packets<16>(c_ring, (n & 1) * 512 + own_place), c_tile);
            float exp_tile[16];
            #pragma unroll
            for (int32_t k = 0; k < 16; ++k) {
                exp_tile[k] = weft::exp2_estimate(dt_tile[k] * rate);
            }
            // kernels_of_states.py:19: for t in range(length):
            const float h_before_start = h_before_kept[h_before_now + n];
            float h_before_own = threadIdx.x == 0 ? h_before_start : 0.0f;  // what the thread's points make of it
            #pragma unroll
            for (int32_t k = 0; k < 16; ++k) {
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
                        for (int32_t k = 0; k < 16; ++k) {
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
            for (int32_t k = 0; k < 16; ++k) {
                // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
                const float h_1_3 = weft::fma(exp_tile[k], h_before_before, dt_u_tile[k] * b_tile[k]);
                // kernels_of_states.py:22: for n in range(states):
                total_own[k] = weft::fma(h_1_3, c_tile[k], total_own[k]);
                h_before_before = h_1_3;
            }
            a_at += 1;
            weft::wait_copies<0>();
            __syncthreads();
            if (n + 2 < state_count) {
                weft::copy_async<16>(b_ring + (n + 2 & 1) * 512 + weft::packet_place<4>(b_packet) * 4, b_from);
                b_from += b_stride_1;
                weft::copy_async<16>(c_ring + (n + 2 & 1) * 512 + weft::packet_place<4>(c_packet) * 4, c_from);
                c_from += c_stride_1;
            }
            weft::commit_copies();
        }
        // kernels_of_states.py:23: h[n] = torch.exp(dt * a[d, n]) * h[n] + dt * b[i, n, t] * u[i, d, t]
        float u_tile[16];
        weft::unpack(weft::fetch<16, 4>(weft::opaque(u_i_d + t_first)), u_tile);
        // kernels_of_states.py:25: y[i, d, t] = (total + skip[d] * u[i, d, t]) * F.silu(z[i, d, t])
        float z_tile[16];
        weft::unpack(weft::fetch<16, 4>(weft::opaque(z_i_d + t_first)), z_tile);
        float y_run[16];
        #pragma unroll
        for (int32_t k = 0; k < 16; ++k) {
            const float total = 0.0f + total_own[k];
            y_run[k] = weft::fma(skip_value, u_tile[k], total) * (z_tile[k] * weft::sigmoid(z_tile[k]));
        }
        weft::store<4>(y_i_d + t_first, y_run);
        weft::sync_team<32>();
    }
}
