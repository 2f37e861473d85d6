// States that grow by products of two vectors, 64 points at a time, by matrix instructions: of a warpgroup (wgmma) where a
// multiprocessor has them, else of a warp (mma.sync).
//
// At a point a matrix X of states becomes decay X + weight u w^T. What a chunk of points does to it, and what is summed over it
// at each of them, are products of matrices. Their factors are sums of bfloat16 parts: a value of that type is one part, one of
// float16 two, one of float32 three, always exactly. Of float32 products of parts, those below float32's rounding are left out.
#pragma once
#include "weft/matrix_tile.cuh"
#include "weft/parts.cuh"

namespace weft {

constexpr int chunk_points = 64;
#if __CUDA_ARCH__ >= 900
constexpr bool by_warpgroups = true;
#else
constexpr bool by_warpgroups = false;
#endif

// A thread's number, for places that are found anew for each chunk: kept, they would take registers from the products.
WEFT_FUNCTION int own_thread() { return opaque(int32_t(threadIdx.x)) & 1023; }

// The number of a thread's warp.
WEFT_FUNCTION int warp_number() { return uniform(int32_t(threadIdx.x) / 32); }

// A block's memory, at an address that it keeps: found anew at each access, it would take longer than what is read there.
template <typename T> WEFT_FUNCTION T& kept_memory(unsigned char* memory) {
#if WEFT_ON_DEVICE
    return *static_cast<T*>(__cvta_shared_to_generic(opaque(int32_t(__cvta_generic_to_shared(memory)))));
#else
    return *reinterpret_cast<T*>(memory);
#endif
}

// What threads have copied and stored is there for the products of all.
WEFT_FUNCTION void meet_for_products() {
    wait_copies<0>();
#if __CUDA_ARCH__ >= 900
    fence_proxy_async();
#endif
    __syncthreads();
}

// Two numbers as pairs of the first eight bits of each, of the next eight, and of the rest.
WEFT_FUNCTION void split(float first, float second, uint32_t (&parts)[exact_parts]) {
#pragma unroll
    for (int p = 0; p < exact_parts; ++p) {
        const uint32_t a = bits_of(first), b = bits_of(second);
        parts[p] = __byte_perm(a, b, 0x7632);
        first -= float_of(a & 0xffff0000u);
        second -= float_of(b & 0xffff0000u);
    }
}

// The numbers of which a register of a fragment has the parts.
template <int parts> WEFT_FUNCTION void merge(const uint32_t (&fragment)[parts][4], int n, float& first, float& second) {
    unpack<bfloat16>(fragment[parts - 1][n], first, second);
#pragma unroll
    for (int p = parts - 2; p >= 0; --p) {
        float x, y;
        unpack<bfloat16>(fragment[p][n], x, y);
        first += x;
        second += y;
    }
}

// `rows` rows of `width` neighbours each, a multiple of 16, as the sum of its parts, in lines of 64.
template <int rows, int width, int parts> struct PartsTile {
    static constexpr int lines = (width + 63) / 64;
    using Across = MatrixTile<bfloat16, 64, false, rows>;
    MatrixTile<bfloat16, rows, true> part[parts][lines];

    // Fragments (`MatrixTile`) of 16 rows and 16 neighbours: with the neighbours summed over, or the rows.
    WEFT_FUNCTION void left(int p, int row, int lane, uint32_t (&a)[4], int thread = threadIdx.x) const {
        part[p][lane / 64].left(row, lane % 64, a, thread);
    }
    WEFT_FUNCTION void right(int p, int row, int lane, uint32_t (&b)[4]) const { part[p][lane / 64].right(row, lane % 64, b); }
    WEFT_FUNCTION void left_across(int p, int lane, int row, uint32_t (&a)[4], int thread = threadIdx.x) const {
        across(p, lane).left(lane % 64, row, a, thread);
    }
    WEFT_FUNCTION void right_across(int p, int lane, int row, uint32_t (&b)[4]) const { across(p, lane).right(lane % 64, row, b); }

#if __CUDA_ARCH__ >= 900
    // The same as operands of a warpgroup's products: 16 neighbours of the rows from `row` on, a multiple of 8; or 16 rows of the
    // neighbours from `lane` on, a multiple of 16, which stay within a line or begin one.
    WEFT_FUNCTION SharedMatrix matrix(int p, int row, int lane) const { return part[p][lane / 64].matrix(row, lane % 64); }
    WEFT_FUNCTION SharedMatrix matrix_across(int p, int lane, int row) const {
        return across(p, lane).matrix(0, row).advanced(lane % 64 * sizeof(bfloat16));
    }
#endif

    WEFT_FUNCTION void copy(int row, int lane, const bfloat16* from, bool here) {
        part[0][lane / 64].copy(row, lane % 64, from, here);
    }
    WEFT_FUNCTION void set(int row, int lane, float value) {
#pragma unroll
        for (int p = 0; p < parts; ++p) {
            bfloat16 own;
            own.bits = uint16_t(bits_of(value) >> 16);
            part[p][lane / 64].element[part[p][0].place(row, lane % 64)] = own;
            value -= float(own);
        }
    }
    // Of a warp: 16 rows and 16 neighbours, of which a thread has those that products leave it: two blocks of eight neighbours.
    WEFT_FUNCTION void set(int row, int lane, const float (&first)[4], const float (&second)[4]) {
        static_assert(parts == exact_parts);
        uint32_t words[4][parts];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const float(&own)[4] = n < 2 ? first : second;
            split(own[n % 2 * 2], own[n % 2 * 2 + 1], words[n]);
        }
        const int thread = own_thread() % 32;
#pragma unroll
        for (int p = 0; p < parts; ++p) {
            auto& tile = part[p][lane / 64];
#if __CUDA_ARCH__ >= 900
            store_matrix(&tile.element[tile.place(row + thread % 16, lane % 64 + thread / 16 * 8)],
                         {words[0][p], words[1][p], words[2][p], words[3][p]});
#else
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const int place = tile.place(row + thread / 4 + n % 2 * 8, lane % 64 + n / 2 * 8 + thread % 4 * 2);
                *reinterpret_cast<uint32_t*>(&tile.element[place]) = words[n][p];
            }
#endif
        }
    }
    WEFT_FUNCTION float get(int row, int lane) const {
        float value = 0.0f;
#pragma unroll
        for (int p = parts - 1; p >= 0; --p) value += float(part[p][lane / 64].element[part[p][0].place(row, lane % 64)]);
        return value;
    }

    WEFT_FUNCTION void get(int row, int lane, float& first, float& second) const {
        first = second = 0.0f;
#pragma unroll
        for (int p = parts - 1; p >= 0; --p) {
            float x, y;
            unpack<bfloat16>(*reinterpret_cast<const uint32_t*>(&part[p][lane / 64].element[part[p][0].place(row, lane % 64)]), x, y);
            first += x;
            second += y;
        }
    }

private:
    WEFT_FUNCTION const Across& across(int p, int lane) const { return reinterpret_cast<const Across&>(part[p][lane / 64]); }
};

// sums += a b for 16 rows and twice 8 columns.
template <int lefts, int rights>
WEFT_FUNCTION void multiply_parts(float (&first)[4], float (&second)[4], const uint32_t (&a)[lefts][4],
                                  const uint32_t (&b)[rights][4]) {
    each_product<lefts, rights>([&](const int p, const int q) {
        mma<bfloat16>(first, a[p], {b[q][0], b[q][1]});
        mma<bfloat16>(second, a[p], {b[q][2], b[q][3]});
    });
}

#if __CUDA_ARCH__ >= 900
// Sums of a warpgroup as its products have them.
template <int blocks> WEFT_FUNCTION float (&flat(float (&sums)[blocks][4]))[blocks * 4] {
    return reinterpret_cast<float(&)[blocks * 4]>(sums);
}

// sums = of all points, the products of what two tiles have of them and of those from `first` on, eight a block: when the thread
// has waited for its products.
template <int blocks, int depth, int lefts, int rights>
WEFT_FUNCTION void multiply_points(float (&sums)[blocks][4], const PartsTile<64, depth, lefts>& left,
                                   const PartsTile<64, depth, rights>& right, int first) {
    bool more = false;
    wgmma_fence(flat(sums));
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
        each_product<lefts, rights>([&](const int p, const int q) {
            wgmma<bfloat16>(flat(sums), left.matrix(p, 0, k), right.matrix(q, first, k), more);
            more = true;
        });
    }
    wgmma_commit();
}
#endif

// Whether all of many numbers are finite: 0 times an infinity, or NaN, is NaN, which stays in a sum. An instruction each.
struct Finite {
    float sums[4] = {};

    WEFT_FUNCTION void see(float value, int v) { sums[v] = fma(value, 0.0f, sums[v]); }
    WEFT_FUNCTION bool all() const { return sums[0] + sums[1] + (sums[2] + sums[3]) == 0.0f; }
};

template <int count> WEFT_FUNCTION bool all_finite(const float (&values)[count][4]) {
    Finite found;
#pragma unroll
    for (int r = 0; r < count; ++r) {
#pragma unroll
        for (int v = 0; v < 4; ++v) found.see(values[r][v], v);
    }
    return found.all();
}

// What is left, at later points of a chunk, of what its points add: products of the decays in between, and of the weight.
struct ChunkWeights {
    static constexpr int pitch = 24;  // rows of 16, so that no bank is met twice
    float near[4][16][pitch];  // by block of 16 points, later point, earlier point: before the later one, or 0 where that is none
    float before[64], after[64];  // from the beginning of the block to a point; from after a point to the block's end, weighted
    float block[4];

    // Of a thread's point, the product of the decays of its block before it, and of all of them; by whole warps.
    WEFT_FUNCTION static void since(float decay, float& before, float& all) {
        const int own = threadIdx.x % 16;
        all = decay;
#pragma unroll
        for (int far = 1; far < 16; far *= 2) {
            const float earlier = __shfl_up_sync(0xffffffffu, all, far, 16);
            if (own >= far) all *= earlier;
        }
        before = __shfl_up_sync(0xffffffffu, all, 1, 16);
        if (own == 0) before = 1.0f;
        all = __shfl_sync(0xffffffffu, all, 15, 16);
    }

    // By the first 128 threads: those of a point have its numbers, and so have the 64 after them. decays: of all points, of which
    // a thread needs those that its own warp has stored. reads: points are read, too.
    template <bool reads> WEFT_FUNCTION void weigh(const float (&decays)[64], float decay, float weight) {
        const int thread = own_thread(), warp = warp_number(), point = thread % 64, own = point % 16;
        if (warp < 2) {
            float left = weight;
#pragma unroll
            for (int r = 0; r < 16; r += 4) {
                const auto next = *reinterpret_cast<const Packet<float, 4>*>(&decays[point - own + r]);
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    if (reads) near[point / 16][r + v][own] = r + v > own ? left : 0.0f;
                    if (r + v > own) left *= next.lane[v];
                }
            }
            after[point] = left;
        } else if (warp < 4) {
            float all, left;
            since(decay, left, all);
            before[point] = left;
            if (own == 15) block[point / 16] = all;
        }
    }

    // What is left at the first point of a block of the states before the chunk.
    WEFT_FUNCTION float since_begin(int own) const {
        float left = 1.0f;
#pragma unroll
        for (int b = 0; b < 3; ++b) {
            if (b < own) left *= block[b];
        }
        return left;
    }
    // What is left after the chunk of the blocks up to this one.
    WEFT_FUNCTION float to_end(int own) const {
        float left = 1.0f;
#pragma unroll
        for (int b = 0; b < 4; ++b) {
            if (b > own) left *= block[b];
        }
        return left;
    }
    WEFT_FUNCTION float total() const { return block[0] * to_end(0); }
};

// sums = at the points of a chunk, the sums over one side of the states before all of them, multiplied by `factor`. over_rows: the
// states' rows are summed over, else their columns. A warp has 16 points and the sums from `first` on, eight a block. scores: of
// a warpgroup, what `read_points` goes on with, of the vectors that its points add with the side that is summed over: of later points.
template <bool over_rows, int blocks, int depth, int factors, int inners, typename States>
WEFT_FUNCTION void read_states(float (&sums)[blocks][4], float (&scores)[4][4], const PartsTile<64, depth, factors>& factor,
                               const PartsTile<64, depth, inners>& inner, const States& states, int first) {
#if __CUDA_ARCH__ >= 900
    bool more = false;
    wgmma_fence(flat(sums));
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
        each_product<factors, exact_parts>([&](const int p, const int q) {
            const SharedMatrix a = factor.matrix(p, 0, k);
            if constexpr (over_rows) wgmma<bfloat16, Major::k, Major::rows>(flat(sums), a, states.matrix_across(q, first, k), more);
            else wgmma<bfloat16>(flat(sums), a, states.matrix(q, first, k), more);
            more = true;
        });
    }
    wgmma_commit();
    multiply_points(scores, factor, inner, 32);
    wgmma_wait<1>(flat(sums));
#else
    const int warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int r = 0; r < blocks; ++r) {
#pragma unroll
        for (int v = 0; v < 4; ++v) sums[r][v] = 0.0f;
    }
#pragma unroll 1
    for (int k = 0; k < depth; k += 16) {
        uint32_t a[factors][4];
#pragma unroll
        for (int p = 0; p < factors; ++p) factor.left(p, warp * 16, k, a[p]);
#pragma unroll
        for (int r = 0; r < blocks; r += 2) {
            uint32_t b[exact_parts][4];
#pragma unroll
            for (int p = 0; p < exact_parts; ++p) {
                if constexpr (over_rows) states.right_across(p, first + r * 8, k, b[p]);
                else states.right(p, first + r * 8, k, b[p]);
            }
            multiply_parts(sums[r], sums[r + 1], a, b);
        }
    }
#endif
}

// What is taken at a warp's points of what points of its chunk add. until: of the warp's block, what is left of what is before it,
// from block to block of those before. taken: of points, what is taken of the states before them; own: of what they add.
template <bool owns> struct PointWeights {
    int warp, q, point;
    float until[2];
    const float (&taken)[64], (&own)[64];

    WEFT_FUNCTION PointWeights(const ChunkWeights& weights, const float (&taken)[64], const float (&own)[64])
        : warp(warp_number() % 4), q(own_thread() % 4), point(own_thread() % 32 / 4), taken(taken), own(own) {
#pragma unroll
        for (int h = 0; h < 2; ++h) until[h] = taken[row(h)] * weights.before[row(h)];
    }
    WEFT_FUNCTION int row(int h) const { return warp * 16 + h * 8 + point; }

    // made = the scores with the points of a block, weighted: of blocks from the warp's own on.
    WEFT_FUNCTION void weigh(float (&made)[2][4], const float (&first)[4], const float (&second)[4], int block,
                             const ChunkWeights& weights) {
        if (block < warp) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const auto after = *reinterpret_cast<const Packet<float, 2>*>(&weights.after[block * 16 + r * 8 + q * 2]);
#pragma unroll
                for (int v = 0; v < 4; ++v) made[r][v] = (r == 0 ? first[v] : second[v]) * (until[v / 2] * after.lane[v % 2]);
            }
            until[0] *= weights.block[block];
            until[1] *= weights.block[block];
        } else {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                made[r][0] = made[r][1] = 0.0f;
#pragma unroll
                for (int h = r; h < 2; ++h) {  // later points are no earlier ones
                    const auto near = *reinterpret_cast<const Packet<float, 2>*>(&weights.near[block][h * 8 + point][r * 8 + q * 2]);
#pragma unroll
                    for (int v = 0; v < 2; ++v) {
                        float left = taken[row(h)] * near.lane[v];
                        if (h == r && q * 2 + v == point) left = owns ? own[row(h)] : 0.0f;
                        made[r][2 * h + v] = (r == 0 ? first[2 * h + v] : second[2 * h + v]) * left;
                    }
                }
            }
        }
    }

    // a = the same as the left operand of a product: of blocks from the last one on.
    WEFT_FUNCTION void weigh(uint32_t (&a)[exact_parts][4], const float (&first)[4], const float (&second)[4], int block,
                             const ChunkWeights& weights) {
        if (block > warp) {
#pragma unroll
            for (int h = 0; h < 4; ++h) {
#pragma unroll
                for (int p = 0; p < exact_parts; ++p) a[p][h] = 0;
            }
            return;
        }
        float made[2][4];
        weigh(made, first, second, block, weights);
#pragma unroll
        for (int h = 0; h < 4; ++h) {
            uint32_t words[exact_parts];
            split(made[h / 2][h % 2 * 2], made[h / 2][h % 2 * 2 + 1], words);
#pragma unroll
            for (int p = 0; p < exact_parts; ++p) a[p][h] = words[p];
        }
    }
};

// The same of the states before each of the points, times `before` of it, and of the product that the point adds, times `own`.
// inner and outer: the vectors of the products, the one that has the side that is summed over first. Returns whether all are
// finite: otherwise something is not that others do not have.
template <bool owns, int blocks, int depth, int factors, int inners, int width, int outers>
WEFT_FUNCTION bool read_points(float (&sums)[blocks][4], float (&scores)[4][4], const PartsTile<64, depth, factors>& factor,
                               const PartsTile<64, depth, inners>& inner, const PartsTile<64, width, outers>& outer,
                               const ChunkWeights& weights, const float (&before)[64], const float (&own)[64], int first) {
    PointWeights<owns> own_weights(weights, before, own);
    const float begin = weights.since_begin(own_weights.warp);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const float since = own_weights.until[h] * begin;
#pragma unroll
        for (int r = 0; r < blocks; ++r) {
            sums[r][2 * h] *= since;
            sums[r][2 * h + 1] *= since;
        }
    }
#if __CUDA_ARCH__ >= 900
    wgmma_wait<0>(flat(scores));
#pragma unroll
    for (int last = 3; last >= 0; last -= 2) {  // more at once have no room in registers
        uint32_t a[2][exact_parts][4];
#pragma unroll
        for (int n = 0; n < 2; ++n) {
            const int j = last - n;
            own_weights.weigh(a[n], scores[2 - 2 * n], scores[3 - 2 * n], j, weights);
            if (n == 0) wgmma_fence(flat(sums), a[n]);
            else wgmma_fence(a[n]);
            each_product<exact_parts, outers>([&](const int p, const int q) {
                wgmma<bfloat16, Major::rows>(flat(sums), a[n][p], outer.matrix_across(q, first, j * 16), true);
            });
            wgmma_commit();
        }
        if (last == 3) {
            multiply_points(scores, factor, inner, 0);
            wgmma_wait<0>(flat(sums), a[0], a[1], flat(scores));
        } else {
            wgmma_wait<0>(flat(sums), a[0], a[1]);
        }
    }
#else
    const int warp = own_weights.warp;
#pragma unroll 1
    for (int j = warp; j >= 0; --j) {
        float own[2][4] = {};
#pragma unroll
        for (int k = 0; k < depth; k += 16) {
            uint32_t a[factors][4], b[inners][4];
#pragma unroll
            for (int p = 0; p < factors; ++p) factor.left(p, warp * 16, k, a[p]);
#pragma unroll
            for (int p = 0; p < inners; ++p) inner.right(p, j * 16, k, b[p]);
            multiply_parts(own[0], own[1], a, b);
        }
        uint32_t a[exact_parts][4];
        own_weights.weigh(a, own[0], own[1], j, weights);
#pragma unroll
        for (int r = 0; r < blocks; r += 2) {
            uint32_t b[outers][4];
#pragma unroll
            for (int p = 0; p < outers; ++p) outer.right_across(p, first + r * 8, j * 16, b[p]);
            multiply_parts(sums[r], sums[r + 1], a, b);
        }
    }
#endif
    return all_finite(sums);
}

// What is known of early states, which were scanned from the last point of a chunk on, and of late ones, for sums of their
// products: of those before the chunk.
struct ChunkStates {
    float of_early[4][64], of_late[4][64], of_both[32];  // states before the chunk with what its points add, and with each other

    // sums = left X right at each point, of states that are shared; by groups of four warps.
    template <int rows, int width, int lefts, int rights, typename States>
    WEFT_FUNCTION static void across(float (&sums)[4][64], const PartsTile<64, rows, lefts>& left, const States& states,
                                     const PartsTile<64, width, rights>& right, int groups) {
        const int warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128, lane = threadIdx.x % 32;
        float total[2] = {};
#pragma unroll 1
        for (int column = group * 16; column < width; column += groups * 16) {
            float sum[2][4] = {};
#pragma unroll
            for (int k = 0; k < rows; k += 16) {
                uint32_t a[lefts][4], b[exact_parts][4];
#pragma unroll
                for (int p = 0; p < lefts; ++p) left.left(p, warp * 16, k, a[p]);
#pragma unroll
                for (int p = 0; p < exact_parts; ++p) states.right_across(p, column, k, b[p]);
                multiply_parts(sum[0], sum[1], a, b);
            }
#pragma unroll
            for (int r = 0; r < 2; ++r) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    float x, y;
                    right.get(warp * 16 + h * 8 + lane / 4, column + r * 8 + lane % 4 * 2, x, y);
                    total[h] = fma(sum[r][2 * h], x, fma(sum[r][2 * h + 1], y, total[h]));
                }
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
            if (lane % 4 == 0) sums[group][warp * 16 + h * 8 + lane / 4] = total[h];
        }
    }

    // The same of sums that `read_states` has found, with the neighbours of what it left.
    template <int blocks, int width, int parts>
    WEFT_FUNCTION static void dots(float (&found)[64], const float (&sums)[blocks][4], const PartsTile<64, width, parts>& other,
                                   int first) {
        const int thread = own_thread(), warp = thread / 32 % 4, lane = thread % 32;
        float total[2] = {};
#pragma unroll
        for (int g = 0; g < blocks; g += 2) {
            uint32_t a[parts][4];
#pragma unroll
            for (int p = 0; p < parts; ++p) other.left(p, warp * 16, first + g * 8, a[p], thread);
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const float(&sum)[4] = sums[g + n / 2];
                float x, y;
                merge(a, n, x, y);
                total[n % 2] = fma(sum[n % 2 * 2], x, fma(sum[n % 2 * 2 + 1], y, total[n % 2]));
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
            if (lane % 4 == 0) found[warp * 16 + h * 8 + lane / 4] = total[h];
        }
    }

protected:
    // The sums over a warp's rows of what its threads have of two pairs of columns: of a thread's `column_of`. Of the columns that
    // it has, a thread gives half to its neighbour, and again.
    WEFT_FUNCTION static float over_rows(float (&sum)[4], int lane) {
        const bool second = lane & 4, odd = lane & 8;
#pragma unroll
        for (int v = 0; v < 2; ++v) {
            const float given = __shfl_xor_sync(0xffffffffu, second ? sum[v] : sum[2 + v], 4);
            sum[v] = (second ? sum[2 + v] : sum[v]) + given;
        }
        const float own = (odd ? sum[1] : sum[0]) + __shfl_xor_sync(0xffffffffu, odd ? sum[0] : sum[1], 8);
        return own + __shfl_xor_sync(0xffffffffu, own, 16);
    }
    WEFT_FUNCTION static int column_of(int lane) { return (lane & 4) * 2 + lane % 4 * 2 + (lane & 8) / 8; }

    WEFT_FUNCTION static float of(const float (&sums)[4][64], int point, int groups) {
        float sum = sums[0][point];
        for (int g = 1; g < groups; ++g) sum += sums[g][point];
        return sum;
    }

    template <int depth, int lefts, int rights>
    WEFT_FUNCTION static void scores(float (&sums)[2][4], const PartsTile<64, depth, lefts>& left,
                                     const PartsTile<64, depth, rights>& right, int row, int column) {
#pragma unroll
        for (int k = 0; k < depth; k += 16) {
            uint32_t a[lefts][4], b[rights][4];
#pragma unroll
            for (int p = 0; p < lefts; ++p) left.left(p, row, k, a[p]);
#pragma unroll
            for (int p = 0; p < rights; ++p) right.right(p, column, k, b[p]);
            multiply_parts(sums[0], sums[1], a, b);
        }
    }
};

// What early states before a point and late ones after it make together at the points of a chunk, where both are multiplied by
// the same decays: sums of their products. They are of pairs of a point, of those that add to early states, and one that adds to
// late ones, on either side: of what both add, times the decays in between, which no point's sum needs apart.
struct ChunkPairs : ChunkStates {
    float row[2][64];  // by half of the points that add to late states: of a point that adds to early ones, with those of other blocks
    float column[4][64];  // by block of points that add to early states: the same of a point that adds to late ones
    float near[64];  // of pairs of a point's own block

    // With half of the points that add to late states; by four warps, of which each has those of a block's points that add to early
    // ones. weight: of those.
    template <int rows, int width, int p0, int p1, int p2, int p3>
    WEFT_FUNCTION void multiply(const PartsTile<64, rows, p0>& early_left, const PartsTile<64, width, p1>& early_right,
                                const PartsTile<64, rows, p2>& late_left, const PartsTile<64, width, p3>& late_right,
                                const ChunkWeights& weights, const float (&weight)[64], int half) {
        const int lane = own_thread() % 32;
        PointWeights<false> own(weights, weight, weight);
        if (half == 0 && own.warp == 3) own.until[0] *= weights.block[2], own.until[1] *= weights.block[2];
        float far[2] = {}, cell[2][4];
#if __CUDA_ARCH__ >= 900
        float one[4][4], other[4][4];
        multiply_points(one, early_left, late_left, half * 32);
        multiply_points(other, early_right, late_right, half * 32);
        wgmma_wait<0>(flat(one), flat(other));
#pragma unroll
        for (int n = 1; n >= 0; --n) {
            const int first = 2 * n, second = first + 1;
            pairs(far, cell, one[first], one[second], other[first], other[second], 2 * half + n, own, weights);
        }
#else
#pragma unroll 1
        for (int j = minimum(own.warp, 2 * half + 1); j >= 2 * half; --j) {
            float one[2][4] = {}, other[2][4] = {};
            scores(one, early_left, late_left, own.warp * 16, j * 16);
            scores(other, early_right, late_right, own.warp * 16, j * 16);
            pairs(far, cell, one[0], one[1], other[0], other[1], j, own, weights);
        }
#endif
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            far[h] += __shfl_xor_sync(0xffffffffu, far[h], 1);
            far[h] += __shfl_xor_sync(0xffffffffu, far[h], 2);
            if (lane % 4 == 0) row[half][own.row(h)] = far[h];
        }
        if (own.warp / 2 != half) return;
        const float around = along(cell, own, lane);
        if (lane < 16) near[own.warp * 16 + column_of(lane)] = around;
    }

    // The sum at a point of a warp's block, of the number of its lane; by four warps. weight: of points that add to early states.
    // earlies, lates: groups that have part each of `of_early`, `of_late`; warps: that have part of `of_both`.
    WEFT_FUNCTION float go(const ChunkWeights& weights, const float (&weight)[64], int warps, int earlies, int lates) const {
        const int lane = own_thread() % 32, block = warp_number() % 4, other = lane / 8;
        const auto late = [&](int point, float since) {
            return weight[point] * weights.before[point] * since * of(of_late, point, lates);
        };
        const auto early = [&](int point, float left) { return weights.after[point] * left * of(of_early, point, earlies); };
        const auto around = [&](int point) {
            float sum = 0.0f;
#pragma unroll
            for (int b = 1; b < 4; ++b) sum += b > block ? column[b][point] : 0.0f;
            return sum;
        };
        // what other blocks have on either side, of which a lane has two points
        float all = lane < warps ? weights.total() * of_both[lane] : 0.0f;
        const float since = weights.since_begin(other), left = weights.to_end(other);
#pragma unroll
        for (int v = 0; v < 2; ++v) {
            const int point = 2 * lane + v;
            if (other > block) all += late(point, since);
            if (other < block) all += early(point, left) + around(point);
        }
#pragma unroll
        for (int far = 1; far < 32; far *= 2) all += __shfl_xor_sync(0xffffffffu, all, far);
        // and the block's own: by half of the lanes the points after one, by others those up to one
        const int point = block * 16 + (lane < 16 ? 15 - lane : lane - 16);
        float own = lane < 16 ? late(point, weights.since_begin(block)) + row[0][point] + row[1][point]
                              : early(point, weights.to_end(block)) + around(point);
#pragma unroll
        for (int far = 1; far < 16; far *= 2) {
            const float before = __shfl_up_sync(0xffffffffu, own, far, 16);
            if (lane % 16 >= far) own += before;
        }
        const float after = __shfl_sync(0xffffffffu, own, 14 - lane % 16), up_to = __shfl_sync(0xffffffffu, own, 16 + lane % 16);
        return all + (lane % 16 < 15 ? after : 0.0f) + up_to + near[block * 16 + lane % 16];
    }

private:
    // What pairs of a warp's points and those of block j make, of two scores each.
    WEFT_FUNCTION void pairs(float (&far)[2], float (&cell)[2][4], const float (&first)[4], const float (&second)[4],
                             const float (&third)[4], const float (&fourth)[4], int j, PointWeights<false>& own,
                             const ChunkWeights& weights) {
        if (j > own.warp) return;
        float both[2][4], made[2][4];
#pragma unroll
        for (int v = 0; v < 4; ++v) both[0][v] = first[v] * third[v], both[1][v] = second[v] * fourth[v];
        own.weigh(made, both[0], both[1], j, weights);
        if (j == own.warp) {
#pragma unroll
            for (int n = 0; n < 8; ++n) cell[n / 4][n % 4] = made[n / 4][n % 4];
            return;
        }
        float sum[4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            sum[n] = made[n / 2][n % 2] + made[n / 2][n % 2 + 2];
            far[n % 2] += made[n / 2][n % 2 * 2] + made[n / 2][n % 2 * 2 + 1];
        }
        const int lane = own_thread() % 32;
        const float total = over_rows(sum, lane);
        if (lane < 16) column[own.warp][j * 16 + column_of(lane)] = total;
    }

    // Of pairs of a block, those on either side of the point of which `over_rows` gives a thread the sum: sums along each row, of
    // the points up to one that is before the row's own.
    WEFT_FUNCTION static float along(const float (&cell)[2][4], const PointWeights<false>& own, int lane) {
        float sum[4] = {};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float before = 0.0f;
#pragma unroll
            for (int g = 0; g <= h; ++g) {
                float all = cell[g][2 * h] + cell[g][2 * h + 1];
#pragma unroll
                for (int n = 1; n < 4; n *= 2) {
                    const float earlier = __shfl_up_sync(0xffffffffu, all, n, 4);
                    if (own.q >= n) all += earlier;
                }
                const float earlier = __shfl_up_sync(0xffffffffu, all, 1, 4);
                const float one = before + (own.q > 0 ? earlier : 0.0f) + cell[g][2 * h];
                const int point = own.q * 2 + 8 * (g - h);
                if (point < own.point) sum[g * 2] += one;
                if (point + 1 < own.point) sum[g * 2 + 1] += one + cell[g][2 * h + 1];
                if (g < h) before = __shfl_sync(0xffffffffu, all, 3, 4);
            }
        }
        return over_rows(sum, lane);
    }
};

// What early states, which were scanned from the last point of a chunk on, and late ones make together at its points: sums of
// their products. Early points are those of low numbers here: what they add to late states is there at the points after them,
// and what these add to early states at the points before. So a block of 16 points is as a chunk, for which the points of other
// blocks are what states have before it: sums of products by what is left of them at its borders.
struct ChunkMeeting : ChunkStates {
    float after[64], until[64], block[4];  // as those of ChunkWeights, of early states; from the block's end to a point
    alignas(16) float near[4][16][ChunkWeights::pitch];  // of early states, by point of a block and point before it, or 0 where that is none
    float column[4][64];  // of a point that adds to late states, with those of a later block

    // Of a thread's rows of its warp's block: products with the block's points, and sums over those of earlier blocks.
    struct Cells {
        float cell[2][4], row[2];
    };

    // By the first 128 threads: those of a point have its numbers, and so have the 64 after them.
    WEFT_FUNCTION void weigh(float decay, float weight) {
        const int thread = own_thread(), warp = warp_number(), point = thread % 64, own = point % 16;
        if (warp < 2) {
            float before, all;
            ChunkWeights::since(decay, before, all);
            after[point] = before * weight;
            if (own == 15) block[point / 16] = all;
        } else if (warp < 4) {
            float left = weight, end = 1.0f;
#pragma unroll
            for (int first = 12; first >= 0; first -= 4) {
                Packet<float, 4> four;
#pragma unroll
                for (int v = 3; v >= 0; --v) {
                    const int r = first + v;
                    const float other = __shfl_sync(0xffffffffu, decay, r, 16);
                    four.lane[v] = r < own ? left : 0.0f;
                    if (r < own) left *= other;
                    if (r > own) end *= other;
                }
                *reinterpret_cast<Packet<float, 4>*>(&near[point / 16][own][first]) = four;
            }
            until[point] = end;
        }
    }

    // The products of what two points add, of both sides; by four warps, of which each has those of a block's points.
    template <int rows, int width, int p0, int p1, int p2, int p3>
    WEFT_FUNCTION void multiply(Cells& own, const PartsTile<64, rows, p0>& early_left, const PartsTile<64, width, p1>& early_right,
                                const PartsTile<64, rows, p2>& late_left, const PartsTile<64, width, p3>& late_right,
                                const ChunkWeights& weights) {
        const int thread = own_thread(), warp = thread / 32 % 4;
        own.row[0] = own.row[1] = 0.0f;
        float far = 1.0f;
#pragma unroll 1
        for (int j = warp; j >= 0; --j) {
            float made[2][4] = {}, other[2][4] = {};
            scores(made, early_left, late_left, warp * 16, j * 16);
            scores(other, early_right, late_right, warp * 16, j * 16);
#pragma unroll
            for (int n = 0; n < 8; ++n) made[n / 4][n % 4] *= other[n / 4][n % 4];
            if (j == warp) {
#pragma unroll
                for (int n = 0; n < 8; ++n) own.cell[n / 4][n % 4] = made[n / 4][n % 4];
            } else {
                use(own, made, weights, thread, j, far);
                far *= weights.block[j];
            }
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            own.row[h] += __shfl_xor_sync(0xffffffffu, own.row[h], 1);
            own.row[h] += __shfl_xor_sync(0xffffffffu, own.row[h], 2);
        }
    }

    // The sum at a point, `point_of` the thread; by the same warps. A thread has two rows, of
    // points that add to early states, and one of the early states that come to the block; it goes along them with late states and
    // what each of them makes with a row's. factors: of both states, of early states and what a point adds to late ones, of what it
    // adds to early ones and late states, of what it adds to both. earlies, lates: groups that have part each of `of_early`, `of_late`.
    WEFT_FUNCTION float go(const Cells& own, const ChunkWeights& weights, const float (&decay)[64], const float (&weight)[64],
                           const float (&both)[64], const float (&early)[64], const float (&late)[64], const float (&added)[64],
                           int warps, int earlies, int lates) {
        const int thread = own_thread(), b = thread / 32 % 4, lane = thread % 32, q = lane % 4, below = lane / 4;
        // early states at the end of the block, with what points before that end add to late ones: by lanes, two points each
        float with[2] = {}, with_all = 0.0f, left = 1.0f;
        for (int c = b + 1; c < 4; ++c) {
            if (lane / 16 < c) with[0] = fma(left, column[c][lane], with[0]);
            if (lane / 16 + 2 < c) with[1] = fma(left, column[c][32 + lane], with[1]);
            if (lane < 16) with_all = fma(left, after[c * 16 + lane] * of(of_late, c * 16 + lane, lates), with_all);
            left *= block[c];
        }
        with[0] = fma(left, of(of_early, lane, earlies), with[0]);
        with[1] = fma(left, of(of_early, 32 + lane, earlies), with[1]);
        if (lane < warps) with_all = fma(left, of_both[lane], with_all);
        float before = 0.0f, reach = 1.0f;  // those of late states at the block's beginning
        for (int a = b - 1; a >= 0; --a) {
            if (lane / 16 == a % 2) before = fma(reach * weights.after[a * 16 + lane % 16], with[a / 2], before);
            reach *= weights.block[a];
        }
        before = fma(reach, with_all, before);
#pragma unroll
        for (int far = 1; far < 32; far *= 2) before += __shfl_xor_sync(0xffffffffu, before, far);
        float state[3], sum[4] = {};
        state[0] = fma(reach, of(of_late, b * 16 + below, lates), own.row[0]);
        state[1] = fma(reach, of(of_late, b * 16 + 8 + below, lates), own.row[1]);
        state[2] = before;
        const float comes = b < 2 ? with[0] : with[1];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            using Two = Packet<float, 2>;
            const int first = g * 8 + q * 2;
            const auto two = [&](const float (&numbers)[64]) { return *reinterpret_cast<const Two*>(&numbers[b * 16 + first]); };
            const Two decays = two(decay), given = two(weight), of_both = two(both), of_early = two(early), of_late = two(late),
                      of_added = two(added);
            // what is left of late states after points of the quad: of a thread's, of those up to it, before it and of all
            float all = decays.lane[0] * decays.lane[1], steps[2];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                steps[n] = q > n ? all : 0.0f;
                const float earlier = __shfl_up_sync(0xffffffffu, all, n + 1, 4);
                if (q > n) all *= earlier;
            }
            const float since = __shfl_up_sync(0xffffffffu, all, 1, 4);
            all = __shfl_sync(0xffffffffu, all, 3, 4);
#pragma unroll
            for (int n = g; n < 3; ++n) {  // no later point is before those of the first rows
                float product[2];
#pragma unroll
                for (int v = 0; v < 2; ++v) {
                    product[v] = n < 2 ? own.cell[g][2 * n % 4 + v] : __shfl_sync(0xffffffffu, comes, b % 2 * 16 + first + v);
                }
                const float one = given.lane[0] * product[0];
                float made = fma(decays.lane[1], one, given.lane[1] * product[1]);
#pragma unroll
                for (int m = 0; m < 2; ++m) made = fma(steps[m], __shfl_up_sync(0xffffffffu, made, m + 1, 4), made);
                const float earlier = __shfl_up_sync(0xffffffffu, made, 1, 4);
                float x[2];
                x[0] = q == 0 ? state[n] : fma(since, state[n], earlier);
                x[1] = fma(decays.lane[0], x[0], one);
                state[n] = fma(all, state[n], __shfl_sync(0xffffffffu, made, 3, 4));
                const Two left = n < 2 ? *reinterpret_cast<const Two*>(&near[b][n * 8 + below][first]) : two(until);
#pragma unroll
                for (int v = 0; v < 2; ++v) {
                    float term = left.lane[v] * fma(of_both.lane[v], x[v], of_early.lane[v] * product[v]);
                    if (n < 2 && first + v == n * 8 + below) term = fma(of_late.lane[v], x[v], of_added.lane[v] * product[v]);
                    if (n < 2 || below == 0) sum[g * 2 + v] += term;
                }
            }
        }
        return over_rows(sum, lane);
    }
    // The point of which `go` gives a thread the sum.
    WEFT_FUNCTION static int point_of(int thread) { return thread / 32 % 4 * 16 + column_of(thread % 32); }

private:
    // What is known of the products of a warp's points with those of block j.
    WEFT_FUNCTION void use(Cells& own, const float (&made)[2][4], const ChunkWeights& weights, int thread, int j, float far) {
        const int warp = thread / 32 % 4, lane = thread % 32, q = lane % 4, below = lane / 4;
        const float low = after[warp * 16 + below], high = after[warp * 16 + 8 + below];
        float sum[4];
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            const auto left = *reinterpret_cast<const Packet<float, 2>*>(&weights.after[j * 16 + g * 8 + q * 2]);
#pragma unroll
            for (int v = 0; v < 2; ++v) {
                own.row[0] = fma(made[g][v], left.lane[v] * far, own.row[0]);
                own.row[1] = fma(made[g][2 + v], left.lane[v] * far, own.row[1]);
                sum[g * 2 + v] = fma(made[g][v], low, made[g][2 + v] * high);
            }
        }
        const float total = over_rows(sum, lane);
        if (lane < 16) column[warp][j * 16 + column_of(lane)] = total;
    }
};

// The states of a block, `rows` x `width` of them in float32: warps have 16 rows each, those of `row_groups` warps further on
// too, and those of `column_groups` share the columns.
template <int rows, int width, int warps> struct OuterStates {
    static constexpr int row_groups = rows / 16 < warps ? rows / 16 : warps;
    static constexpr int column_groups = row_groups * 4 <= warps && width % 64 == 0 ? 4 : row_groups * 2 <= warps && width % 32 == 0 ? 2 : 1;
    static constexpr int blocks = (rows / 16 + row_groups - 1) / row_groups, columns = width / 8 / column_groups;
    static constexpr int count = blocks * columns;
    float state[count][4];

    WEFT_FUNCTION static int first_row(int b, int thread = threadIdx.x) { return (thread / 32 % row_groups + b * row_groups) * 16; }
    WEFT_FUNCTION static int first_column(int thread = threadIdx.x) {
        return column_groups == 1 ? 0 : thread / 32 / row_groups * (8 * columns);
    }
    WEFT_FUNCTION static bool has(int b, int thread = threadIdx.x) {
        if (row_groups * column_groups < warps && thread / 32 >= row_groups * column_groups) return false;
        return rows / 16 % row_groups == 0 || first_row(b, thread) < rows;
    }

    // Call back with the row and the column of each state, and the state.
    template <typename F> WEFT_FUNCTION void each(const F& use) {
        const int thread = own_thread(), lane = thread % 32;
#pragma unroll
        for (int r = 0; r < count; ++r) {
            if (!has(r / columns, thread)) continue;
            const int row = first_row(r / columns, thread) + lane / 4, column = first_column(thread) + r % columns * 8 + lane % 4 * 2;
#pragma unroll
            for (int v = 0; v < 4; ++v) use(row + v / 2 * 8, column + v % 2, state[r][v]);
        }
    }

    WEFT_FUNCTION void clear() {
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] = 0.0f;
        }
    }

    // A thread's place in memory for four states, by the numbers of those: the same ones whatever number of warps share columns.
    WEFT_FUNCTION static int place(int r, int thread) {
        constexpr int threads = 32 * row_groups;
        return (thread / threads * count + r) * threads + thread % threads;
    }

    // To where other blocks, or other warps, find them.
    WEFT_FUNCTION void leave(float* memory) const {
        const int thread = own_thread();
        if (!has(0, thread)) return;
#pragma unroll
        for (int r = 0; r < count; ++r) {
            *reinterpret_cast<Packet<float, 4>*>(memory + place(r, thread) * 4) =
                {state[r][0], state[r][1], state[r][2], state[r][3]};
        }
    }
    // After other points, of which this is what they add, and what they leave.
    WEFT_FUNCTION void follow(const float* memory, float left) {
        const int thread = own_thread();
        if (!has(0, thread)) return;
#pragma unroll
        for (int r = 0; r < count; ++r) {
            const auto added = *reinterpret_cast<const Packet<float, 4>*>(memory + place(r, thread) * 4);
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] = fma(left, state[r][v], added.lane[v]);
        }
    }
    WEFT_FUNCTION void share(PartsTile<rows, width, exact_parts>& tile) const {
        const int thread = own_thread();
#pragma unroll
        for (int r = 0; r < count; r += 2) {
            if (!has(r / columns, thread)) continue;
            tile.set(first_row(r / columns, thread), first_column(thread) + r % columns * 8, state[r], state[r + 1]);
        }
    }

    WEFT_FUNCTION void find(const float* memory) {
        const int thread = own_thread();
#pragma unroll
        for (int r = 0; r < count; ++r) {
            Packet<float, 4> found = {};
            if (has(0, thread)) found = *reinterpret_cast<const Packet<float, 4>*>(memory + place(r, thread) * 4);
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] = found.lane[v];
        }
    }
    // The sum over all states of their products with others, by warps.
    WEFT_FUNCTION float products(const OuterStates& other) const {
        float sum = 0.0f;
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) sum = fma(state[r][v], other.state[r][v], sum);
        }
        if (!has(0)) sum = 0.0f;
#pragma unroll
        for (int far = 1; far < 32; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        return sum;
    }

    // a = what 16 points of a chunk add to a warp's rows, as far as it is left after the chunk.
    template <int lefts>
    WEFT_FUNCTION static void weighted(uint32_t (&a)[exact_parts][4], const PartsTile<64, rows, lefts>& left,
                                       const ChunkWeights& weights, int b, int k) {
        const int thread = own_thread(), q = thread % 4;
        const float end = weights.to_end(k);
        float ends[4];
#pragma unroll
        for (int v = 0; v < 4; ++v) ends[v] = weights.after[k * 16 + v / 2 * 8 + q * 2 + v % 2] * end;
        uint32_t given[lefts][4];
#pragma unroll
        for (int p = 0; p < lefts; ++p) left.left_across(p, first_row(b, thread), k * 16, given[p], thread);
#pragma unroll
        for (int h = 0; h < 4; ++h) {
            float first, second;
            merge(given, h, first, second);
            uint32_t words[exact_parts];
            split(first * ends[h / 2 * 2], second * ends[h / 2 * 2 + 1], words);
#pragma unroll
            for (int p = 0; p < exact_parts; ++p) a[p][h] = words[p];
        }
    }

    // sums = what the points of a chunk add to the states; onto: added to what they are.
    template <bool onto, int lefts, int rights>
    WEFT_FUNCTION static void products(float (&sums)[count][4], const PartsTile<64, rows, lefts>& left,
                                       const PartsTile<64, width, rights>& right, const ChunkWeights& weights) {
#pragma unroll
        for (int b = 0; b < blocks; ++b) {
            float (&own)[columns][4] = reinterpret_cast<float(&)[columns][4]>(sums[b * columns]);
            if (!onto && (!by_warpgroups || rows % 64 || !has(b))) {
#pragma unroll
                for (int r = 0; r < columns; ++r) own[r][0] = own[r][1] = own[r][2] = own[r][3] = 0.0f;
            }
            if (!has(b)) continue;
#if __CUDA_ARCH__ >= 900
            if constexpr (rows % 64 == 0) {  // a warpgroup has 64 of them
                const int first = first_column(warp_number() * 32);
#pragma unroll
                for (int k = 0; k < 4; k += 2) {
                    uint32_t a[2][exact_parts][4];
#pragma unroll
                    for (int n = 0; n < 2; ++n) {
                        weighted(a[n], left, weights, b, k + n);
                        if (n == 0) wgmma_fence(flat(own), a[n]);
                        else wgmma_fence(a[n]);
                        bool more = onto || k + n > 0;
                        each_product<exact_parts, rights>([&](const int p, const int q) {
                            const SharedMatrix other = right.matrix_across(q, first, (k + n) * 16);
                            wgmma<bfloat16, Major::rows>(flat(own), a[n][p], other, more);
                            more = true;
                        });
                        wgmma_commit();
                    }
                    wgmma_wait<0>(flat(own), a[0], a[1]);
                }
                continue;
            }
#endif
#pragma unroll 1
            for (int k = 0; k < 4; ++k) {
                uint32_t a[exact_parts][4];
                weighted(a, left, weights, b, k);
#pragma unroll
                for (int c = 0; c < columns; c += 2) {
                    uint32_t other[rights][4];
#pragma unroll
                    for (int p = 0; p < rights; ++p) right.right_across(p, first_column() + c * 8, k * 16, other[p]);
                    multiply_parts(own[c], own[c + 1], a, other);
                }
            }
        }
    }

    // Go on with what the points of a chunk make of the states. Returns what is left of those before.
    template <int lefts, int rights>
    WEFT_FUNCTION float add(const PartsTile<64, rows, lefts>& left, const PartsTile<64, width, rights>& right,
                            const ChunkWeights& weights) {
        const float total = weights.total();
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] *= total;
        }
        products<true>(state, left, right, weights);
        return total;
    }

    // next = what the points of a chunk add to the states, of which `total` is left; whether the states after them are finite.
    template <int lefts, int rights>
    WEFT_FUNCTION bool after(float (&next)[count][4], float& total, const PartsTile<64, rows, lefts>& left,
                             const PartsTile<64, width, rights>& right, const ChunkWeights& weights) const {
        products<false>(next, left, right, weights);
        Finite found;
        total = weights.total();
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) found.see(fma(total, state[r][v], next[r][v]), v);
        }
        return found.all();
    }
    // Go on with them. They are computed twice: kept until all know that they are finite, they would take registers from products.
    WEFT_FUNCTION void take(const float (&next)[count][4], float total) {
        const float own = opaque(total);
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] = fma(own, state[r][v], next[r][v]);
        }
    }

    // Points in order, as the program has it: where something is not finite, and others are not to have that. The states are in
    // shared memory then, where a thread finds all of them.
    WEFT_FUNCTION void spread(float* states) {
        each([&](int row, int column, float& x) { states[row * width + column] = x; });
        __syncthreads();
    }
    WEFT_FUNCTION void gather(const float* states) {
        each([&](int row, int column, float& x) { x = states[row * width + column]; });
        __syncthreads();
    }
    template <typename Left, typename Right>
    WEFT_FUNCTION static void step(float* states, int point, const Left& left, const Right& right, float decay, float weight,
                                   int rows_here, int columns_here) {
        for (int n = own_thread(); n < rows * width; n += 32 * warps) {
            const int row = n / width, column = n % width;
            if (row >= rows_here || column >= columns_here) continue;
            states[n] = decay * states[n] + weight * (left.get(point, row) * right.get(point, column));
        }
        __syncthreads();
    }
    // The same in registers, and the sum of what is made of each state; it comes to all threads.
    template <typename Left, typename Right>
    WEFT_FUNCTION void step_here(int point, const Left& left, const Right& right, float decay, float weight, int rows_here,
                                 int columns_here) {
        each([&](int row, int column, float& x) {
            if (row >= rows_here || column >= columns_here) return;
            x = decay * x + weight * (left.get(point, row) * right.get(point, column));
        });
    }
    template <typename F> WEFT_FUNCTION float sum_here(float (&parts)[32], int rows_here, int columns_here, const F& made) {
        float sum = 0.0f;
        each([&](int row, int column, float& x) {
            if (row < rows_here && column < columns_here) sum += made(row, column, x);
        });
#pragma unroll
        for (int far = 1; far < 32; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        __syncthreads();
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.0f;
        for (int w = 0; w < warps; ++w) sum += parts[w];
        return sum;
    }
    // A sum over one side of the states before a point: threads call back with each.
    template <bool over_rows, bool owns, typename Factor, typename Left, typename Right, typename F>
    WEFT_FUNCTION static void read_step(const float* states, int point, const Factor& factor, const Left& left,
                                        const Right& right, float before, float own, int rows_here, int columns_here,
                                        const F& use) {
        for (int n = own_thread(); n < (over_rows ? columns_here : rows_here); n += 32 * warps) {
            float sum = 0.0f;
#pragma unroll 1
            for (int k = 0; k < (over_rows ? rows_here : columns_here); ++k) {
                const int row = over_rows ? k : n, column = over_rows ? n : k;
                float x = before * states[row * width + column];
                if constexpr (owns) x += own * (left.get(point, row) * right.get(point, column));
                sum += factor.get(point, k) * x;
            }
            use(n, sum);
        }
    }
};

// Of four states of a row, what each of the blocks that share it makes of zeros, `held` places apart, and what each leaves of those
// before: for each run of `pieces` of them, the states before it take the place of the first one's. Blocks after would each read all
// of those before themselves.
template <int pieces> WEFT_FUNCTION void join_states(float* sums, const float* left, int32_t held, int32_t blocks) {
    constexpr int ahead = 32;  // on their way at once
    Packet<float, 4> state = {};
    for (int32_t first = 0; first < blocks; first += ahead) {
        Packet<float, 4> added[ahead];
        float lefts[ahead];
#pragma unroll
        for (int n = 0; n < ahead; ++n) {
            if (first + n >= blocks) break;
            added[n] = *reinterpret_cast<const Packet<float, 4>*>(sums + int64_t(first + n) * held);
            lefts[n] = left[first + n];
        }
#pragma unroll
        for (int n = 0; n < ahead; ++n) {
            if (first + n >= blocks) break;
            if ((first + n) % pieces == 0) *reinterpret_cast<Packet<float, 4>*>(sums + int64_t(first + n) * held) = state;
#pragma unroll
            for (int v = 0; v < 4; ++v) state.lane[v] = fma(lefts[n], state.lane[v], added[n].lane[v]);
        }
    }
}

}  // namespace weft
