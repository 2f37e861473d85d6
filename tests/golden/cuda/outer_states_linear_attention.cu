#include "weft/chunk.cuh"
#include "weft/dependent.cuh"

extern "C" __global__ void __launch_bounds__(128, 4) linear_attention_before(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    const float* __restrict__ g,
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
    const int64_t o_stride_0,
    const int64_t o_stride_1,
    const int64_t o_stride_2,
    const int64_t batch,
    const int64_t heads,
    const int64_t length,
    const int64_t width,
    const int64_t v_size_3,
    float* state_before_sums,
    float* state_before_left,
    const int64_t parts) {
    weft::allow_launch_after();
    // a block has 64 x 64 states, and goes through its points 64 at a time
    const int32_t segment = int32_t(blockIdx.x % parts);
    const int64_t b = int64_t(blockIdx.x / parts) / heads;
    const int64_t h_2 = int64_t(blockIdx.x / parts) % heads;
    const weft::bfloat16* k_b_h = k + b * k_stride_0 + h_2 * k_stride_1;
    const weft::bfloat16* v_b_h = v_2 + b * v_stride_0 + h_2 * v_stride_1;
    const float* g_b_h = g + b * g_stride_0 + h_2 * g_stride_1;
    // in shared memory: what products are made of, the states before a chunk, and numbers of its points
    struct Shared {
        weft::PartsTile<64, 64, 1> k_tile[2];
        weft::PartsTile<64, 64, 1> v_tile[2];
        weft::ChunkWeights weights;
        alignas(16) float weight[2][64];
        alignas(16) float decay[2][64];
    };
    extern __shared__ __align__(1024) unsigned char memory[];
    static_assert(sizeof(Shared) <= 40960);
    Shared& shared = weft::kept_memory<Shared>(memory);
    weft::OuterStates<64, 64, 4> states;
    static_assert(states.count * 4 == 32);
    const int32_t chunks = int32_t((length + 63) / 64);
    const int32_t each = int32_t((chunks + parts - 1) / parts);
    const int32_t first = segment * each, stop = weft::minimum<int32_t>(first + each, chunks);
    const auto bring = [&](const int32_t chunk, const int32_t stage) {
        // found anew for each chunk: places of all copies would take registers from the products
        const int32_t thread = weft::opaque(int32_t(threadIdx.x)) & 127;
        const int32_t points = int32_t(weft::minimum<int64_t>(64, length - int64_t(chunk) * 64));
        {
            const int32_t row = thread / 8, lane = thread % 8 * 8;
            const int64_t point = int64_t(chunk) * 64 + row;
            const bool inside = lane < int32_t(width);
            const int64_t d = lane;
            const int64_t t = point;
            // linear_attention.py:35: state[d] = torch.exp(g[b, h, t]) * state[d] + k[b, h, t, d] * v[b, h, t, e]
            const auto* const from = k_b_h + t * k_stride_2 + d;
            #pragma unroll
            for (int32_t n = 0; n < 4; ++n) {
                shared.k_tile[stage].copy(row + n * 16, lane, from + n * (16 * k_stride_2), inside && row + n * 16 < points);
            }
        }
        {
            const int32_t row = thread / 8, lane = thread % 8 * 8;
            const int64_t point = int64_t(chunk) * 64 + row;
            const bool inside = lane < int32_t(v_size_3);
            const int64_t e = lane;
            const int64_t t = point;
            // linear_attention.py:35: state[d] = torch.exp(g[b, h, t]) * state[d] + k[b, h, t, d] * v[b, h, t, e]
            const auto* const from = v_b_h + t * v_stride_2 + e;
            #pragma unroll
            for (int32_t n = 0; n < 4; ++n) {
                shared.v_tile[stage].copy(row + n * 16, lane, from + n * (16 * v_stride_2), inside && row + n * 16 < points);
            }
        }
        weft::commit_copies();
    };
    float g_ahead = {};
    const auto look = [&](const int32_t chunk) {
        const int32_t thread = weft::own_thread();
        const int64_t point = int64_t(chunk) * 64 + thread % 64;
        if (thread < 128 && point < length) {
            const int64_t t = point;
            // linear_attention.py:35: state[d] = torch.exp(g[b, h, t]) * state[d] + k[b, h, t, d] * v[b, h, t, e]
            g_ahead = g_b_h[t];
        }
    };
    const auto keep = [&](const int32_t chunk, const int32_t stage) {
        float weight_ahead = 1.0f;
        float decay_ahead = 1.0f;
        const int32_t thread = weft::own_thread();
        const int64_t point = int64_t(chunk) * 64 + thread % 64;
        if (thread < 128 && point < length) {
            const float exp = weft::exp(g_ahead);
            weight_ahead = 1.0f;
            decay_ahead = exp;
        }
        if (thread < 64) {
            shared.weight[stage][thread] = weight_ahead;
            shared.decay[stage][thread] = decay_ahead;
        }
        __syncwarp();
        shared.weights.weigh<false>(shared.decay[stage], decay_ahead, weight_ahead);
    };
    states.clear();
    float left = 1.0f;
    if (first < stop) {
        look(first);
        bring(first, first % 2);
        keep(first, first % 2);
    }
    for (int32_t chunk = first; chunk < stop; ++chunk) {
        const int32_t stage = weft::uniform(chunk % 2);
        weft::meet_for_products();
        if (chunk + 1 < stop) {
            look(chunk + 1);
            bring(chunk + 1, stage ^ 1);
        }
        left *= states.add(shared.k_tile[stage], shared.v_tile[stage], shared.weights);
        __syncthreads();
        if (chunk + 1 < stop) keep(chunk + 1, stage ^ 1);
    }
    states.leave(state_before_sums + int64_t(blockIdx.x) * 4096);
    if (threadIdx.x == 0) state_before_left[blockIdx.x] = left;
}

extern "C" __global__ void __launch_bounds__(128) linear_attention_joined(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    const float* __restrict__ g,
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
    const int64_t o_stride_0,
    const int64_t o_stride_1,
    const int64_t o_stride_2,
    const int64_t batch,
    const int64_t heads,
    const int64_t length,
    const int64_t width,
    const int64_t v_size_3,
    float* state_before_sums,
    float* state_before_left,
    const int64_t parts) {
    weft::await_launch_before();
    weft::allow_launch_after();
    // a thread has four states of a row
    const int64_t row = blockIdx.x / 8;
    const int32_t place = (blockIdx.x % 8 * 128 + threadIdx.x) * 4;
    {
        const int32_t told = int32_t(parts);
        weft::join_states<1>(state_before_sums + row * told * 4096 + place, state_before_left + row * told, 4096, told);
    }
}

extern "C" __global__ void __launch_bounds__(128, 3) linear_attention(
    const weft::bfloat16* __restrict__ q,
    const weft::bfloat16* __restrict__ k,
    const weft::bfloat16* __restrict__ v_2,
    const float* __restrict__ g,
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
    const int64_t o_stride_0,
    const int64_t o_stride_1,
    const int64_t o_stride_2,
    const int64_t batch,
    const int64_t heads,
    const int64_t length,
    const int64_t width,
    const int64_t v_size_3,
    float* state_before_sums,
    float* state_before_left,
    const int64_t parts) {
    weft::await_launch_before();
    // a block has 64 x 64 states, and goes through its points 64 at a time
    const int32_t segment = int32_t(blockIdx.x % parts);
    const int64_t b = int64_t(blockIdx.x / parts) / heads;
    const int64_t h_2 = int64_t(blockIdx.x / parts) % heads;
    const weft::bfloat16* q_b_h = q + b * q_stride_0 + h_2 * q_stride_1;
    const weft::bfloat16* k_b_h = k + b * k_stride_0 + h_2 * k_stride_1;
    const weft::bfloat16* v_b_h = v_2 + b * v_stride_0 + h_2 * v_stride_1;
    const float* g_b_h = g + b * g_stride_0 + h_2 * g_stride_1;
    weft::bfloat16* o_b_h = o + b * o_stride_0 + h_2 * o_stride_1;
    // in shared memory: what products are made of, the states before a chunk, and numbers of its points
    struct Shared {
        weft::PartsTile<64, 64, 1> k_tile[2];
        weft::PartsTile<64, 64, 1> v_tile[2];
        weft::PartsTile<64, 64, 1> q_tile[1];
        weft::PartsTile<64, 64, weft::exact_parts> states;
        weft::ChunkWeights weights;
        alignas(16) float weight[2][64];
        alignas(16) float decay[2][64];
    };
    extern __shared__ __align__(1024) unsigned char memory[];
    static_assert(sizeof(Shared) <= 73728);
    Shared& shared = weft::kept_memory<Shared>(memory);
    weft::OuterStates<64, 64, 4> states;
    static_assert(states.count * 4 == 32);
    const int32_t chunks = int32_t((length + 63) / 64);
    const int32_t each = int32_t((chunks + parts - 1) / parts);
    const int32_t first = segment * each, stop = weft::minimum<int32_t>(first + each, chunks);
    const auto bring = [&](const int32_t chunk, const int32_t stage) {
        // found anew for each chunk: places of all copies would take registers from the products
        const int32_t thread = weft::opaque(int32_t(threadIdx.x)) & 127;
        const int32_t points = int32_t(weft::minimum<int64_t>(64, length - int64_t(chunk) * 64));
        {
            const int32_t row = thread / 8, lane = thread % 8 * 8;
            const int64_t point = int64_t(chunk) * 64 + row;
            const bool inside = lane < int32_t(width);
            const int64_t d = lane;
            const int64_t t = point;
            // linear_attention.py:35: state[d] = torch.exp(g[b, h, t]) * state[d] + k[b, h, t, d] * v[b, h, t, e]
            const auto* const from = k_b_h + t * k_stride_2 + d;
            #pragma unroll
            for (int32_t n = 0; n < 4; ++n) {
                shared.k_tile[stage].copy(row + n * 16, lane, from + n * (16 * k_stride_2), inside && row + n * 16 < points);
            }
        }
        {
            const int32_t row = thread / 8, lane = thread % 8 * 8;
            const int64_t point = int64_t(chunk) * 64 + row;
            const bool inside = lane < int32_t(v_size_3);
            const int64_t e = lane;
            const int64_t t = point;
            // linear_attention.py:35: state[d] = torch.exp(g[b, h, t]) * state[d] + k[b, h, t, d] * v[b, h, t, e]
            const auto* const from = v_b_h + t * v_stride_2 + e;
            #pragma unroll
            for (int32_t n = 0; n < 4; ++n) {
                shared.v_tile[stage].copy(row + n * 16, lane, from + n * (16 * v_stride_2), inside && row + n * 16 < points);
            }
        }
        weft::commit_copies();
    };
    float g_ahead = {};
    const auto look = [&](const int32_t chunk) {
        const int32_t thread = weft::own_thread();
        const int64_t point = int64_t(chunk) * 64 + thread % 64;
        if (thread < 128 && point < length) {
            const int64_t t = point;
            // linear_attention.py:35: state[d] = torch.exp(g[b, h, t]) * state[d] + k[b, h, t, d] * v[b, h, t, e]
            g_ahead = g_b_h[t];
        }
    };
    const auto bring_factors = [&](const int32_t chunk) {
        const int32_t thread = weft::opaque(int32_t(threadIdx.x)) & 127;
        const int32_t points = int32_t(weft::minimum<int64_t>(64, length - int64_t(chunk) * 64));
        {
            const int32_t row = thread / 8, lane = thread % 8 * 8;
            const int64_t point = int64_t(chunk) * 64 + row;
            const bool inside = lane < int32_t(width);
            const int64_t d = lane;
            const int64_t t = point;
            // linear_attention.py:36: total += q[b, h, t, d] * state[d]
            const auto* const from = q_b_h + t * q_stride_2 + d;
            #pragma unroll
            for (int32_t n = 0; n < 4; ++n) {
                shared.q_tile[0].copy(row + n * 16, lane, from + n * (16 * q_stride_2), inside && row + n * 16 < points);
            }
        }
        weft::commit_copies();
    };
    const auto keep = [&](const int32_t chunk, const int32_t stage) {
        float weight_ahead = 1.0f;
        float decay_ahead = 1.0f;
        const int32_t thread = weft::own_thread();
        const int64_t point = int64_t(chunk) * 64 + thread % 64;
        if (thread < 128 && point < length) {
            const float exp = weft::exp(g_ahead);
            weight_ahead = 1.0f;
            decay_ahead = exp;
        }
        if (thread < 64) {
            shared.weight[stage][thread] = weight_ahead;
            shared.decay[stage][thread] = decay_ahead;
        }
        __syncwarp();
        shared.weights.weigh<true>(shared.decay[stage], decay_ahead, weight_ahead);
    };
    const auto write_0 = [&](const int32_t chunk, const int32_t row, const int64_t lane, const float value) {
        const int64_t point = int64_t(chunk) * 64 + row;
        if (!(point < length) || int32_t(lane) >= int32_t(v_size_3)) return;
        const int64_t e = lane;
        const int64_t t = point;
        const float total_2 = value;
        // linear_attention.py:37: o[b, h, t, e] = total
        o_b_h[t * o_stride_2 + e] = total_2;
    };
    const auto pack_0_0 = [&](const int32_t chunk, const int32_t row, const int64_t lane, const float value, const float other) {
        float one, two;  // no array: ptxas would have stored it
        {
            const float total_3 = value;
            one = total_3;
        }
        {
            const float total_4 = other;
            two = total_4;
        }
        return weft::pack<weft::bfloat16>(one, two);
    };
    const auto store_0_0 = [&](const int32_t chunk, const int32_t row, const int64_t lane, const uint32_t (&words)[4]) {
        const int64_t point = int64_t(chunk) * 64 + row;
        if (!(point < length) || int32_t(lane) >= int32_t(v_size_3)) return;
        const int64_t e = lane;
        const int64_t t = point;
        auto* const to = reinterpret_cast<uint32_t*>(o_b_h + t * o_stride_2 + e);
        weft::put_streaming(to, weft::Packet<uint32_t, 4>{words[0], words[1], words[2], words[3]});
    };
    int32_t from = first;
    float left = 1.0f;
    states.clear();
    // one turn, of which ptxas does not know: else it has the rows' places in registers from here on, and spills
    #pragma unroll 1
    for (int32_t n = weft::opaque(1); n > 0; --n) states.follow(state_before_sums + int64_t(blockIdx.x) * 4096, left);
    if (!__syncthreads_and(weft::all_finite(states.state))) {
        // what is not finite is found again in order: not all that blocks have left may be in it
        from = 0;
        states.clear();
    }
    if (from < stop) {
        look(from);
        bring(from, from % 2);
        keep(from, from % 2);
        bring_factors(from);
    }
    states.share(shared.states);
    for (int32_t chunk = from; chunk < stop; ++chunk) {
        const int32_t stage = weft::uniform(chunk % 2);
        weft::meet_for_products();
        if (chunk + 1 < stop) {
            look(chunk + 1);
            bring(chunk + 1, stage ^ 1);
        }
        bool fine = true;
        float next[decltype(states)::count][4], total = 0.0f;
        if (chunk < first) fine = false;  // for its states alone, in order
        else {
            {
                float sums[8][4], scores[4][4];
                const int32_t first_lane = 0;
                weft::read_states<true>(sums, scores, shared.q_tile[0], shared.k_tile[stage], shared.states, first_lane);
                fine = weft::read_points<true>(sums, scores, shared.q_tile[0], shared.k_tile[stage],
                        shared.v_tile[stage], shared.weights, shared.decay[stage], shared.weight[stage], first_lane) && fine;
                const int32_t thread = weft::own_thread();
                const int32_t row = thread / 32 % 4 * 16 + thread % 32 / 4;
                const int64_t lane = first_lane + thread % 4 * 2;  // so that places are found once
                #pragma unroll
                for (int32_t h = 0; h < 2; ++h) {
                    #pragma unroll
                    for (int32_t r = 0; r < 8; r += 4) {
                        uint32_t words[4];
                        #pragma unroll
                        for (int32_t n = 0; n < 4; ++n) {
                            words[n] = pack_0_0(chunk, row + 8 * h, lane + (r + n) * 8, sums[r + n][2 * h],
                                    sums[r + n][2 * h + 1]);
                        }
                        weft::exchange_square(words, thread % 4);
                        store_0_0(chunk, row + 8 * h, first_lane + (r + thread % 4) * 8, words);
                    }
                }
            }
        }
        __syncthreads();  // what states are taken with makes room
        if (chunk + 1 < stop) bring_factors(chunk + 1);
        if (chunk >= first) {
            fine = states.after(next, total, shared.k_tile[stage], shared.v_tile[stage], shared.weights) && fine;
        }
        if (__syncthreads_and(fine)) {
            states.take(next, total);
        }
        else {
            // something is not finite: only those points are to have it that have it in order
            weft::wait_copies<0>();
            __syncthreads();
            bring_factors(chunk);
            weft::wait_copies<0>();
            __syncthreads();
            float* const all = reinterpret_cast<float*>(&shared.states);
            states.spread(all);
            const int32_t points = int32_t(weft::minimum<int64_t>(64, length - int64_t(chunk) * 64));
            #pragma unroll 1
            for (int32_t point = 0; point < points; ++point) {
                if (chunk >= first) {
                    const auto use_0 = [&](const int32_t lane, const float sum) {
                        write_0(chunk, point, lane, sum);
                    };
                    states.read_step<true, true>(all, point, shared.q_tile[0], shared.k_tile[stage],
                            shared.v_tile[stage], shared.decay[stage][point], shared.weight[stage][point],
                            int32_t(width), int32_t(v_size_3), use_0);
                    __syncthreads();
                }
                states.step(all, point, shared.k_tile[stage], shared.v_tile[stage], shared.decay[stage][point],
                        shared.weight[stage][point], int32_t(width), int32_t(v_size_3));
            }
            states.gather(all);
            if (chunk + 1 < stop) bring_factors(chunk + 1);
        }
        states.share(shared.states);
        if (chunk + 1 < stop) keep(chunk + 1, stage ^ 1);
    }
}
