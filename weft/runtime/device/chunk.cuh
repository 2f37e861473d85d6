// States that grow by products of two vectors, 64 points at a time, by matrix instructions (mma.sync).
//
// At a point a matrix X of states becomes decay X + weight u w^T. What a chunk of points does to it, and what is summed over it
// at each of them, are products of matrices. Their factors are sums of bfloat16 parts: a value of that type is one part, one of
// float16 two, one of float32 three, always exactly. Of float32 products of parts, those below float32's rounding are left out.
#pragma once
#include "weft/matrix_tile.cuh"

namespace weft {

constexpr int chunk_points = 64, exact_parts = 3;

// Two numbers as pairs of the first eight bits of each, of the next eight, and of the rest.
WEFT_FUNCTION void split(float first, float second, uint32_t (&parts)[exact_parts]) {
#pragma unroll
    for (int p = 0; p < exact_parts; ++p) {
        const uint32_t a = bits_of(first), b = bits_of(second);
        parts[p] = a >> 16 | (b & 0xffff0000u);
        first -= float_of(a & 0xffff0000u);
        second -= float_of(b & 0xffff0000u);
    }
}

// `rows` rows of `width` neighbours each, a multiple of 16, as the sum of its parts, in lines of 64.
template <int rows, int width, int parts> struct PartsTile {
    static constexpr int lines = (width + 63) / 64;
    using Across = MatrixTile<bfloat16, 64, false, rows>;
    MatrixTile<bfloat16, rows, true> part[parts][lines];

    // Fragments (`MatrixTile`) of 16 rows and 16 neighbours: with the neighbours summed over, or the rows.
    WEFT_FUNCTION void left(int p, int row, int lane, uint32_t (&a)[4]) const { part[p][lane / 64].left(row, lane % 64, a); }
    WEFT_FUNCTION void right(int p, int row, int lane, uint32_t (&b)[4]) const { part[p][lane / 64].right(row, lane % 64, b); }
    WEFT_FUNCTION void left_across(int p, int lane, int row, uint32_t (&a)[4]) const { across(p, lane).left(lane % 64, row, a); }
    WEFT_FUNCTION void right_across(int p, int lane, int row, uint32_t (&b)[4]) const { across(p, lane).right(lane % 64, row, b); }

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
    // Two neighbours, the first of them even.
    WEFT_FUNCTION void set(int row, int lane, float first, float second) {
        static_assert(parts == exact_parts);
        uint32_t words[parts];
        split(first, second, words);
#pragma unroll
        for (int p = 0; p < parts; ++p) {
            *reinterpret_cast<uint32_t*>(&part[p][lane / 64].element[part[p][0].place(row, lane % 64)]) = words[p];
        }
    }
    WEFT_FUNCTION float get(int row, int lane) const {
        float value = 0.0f;
#pragma unroll
        for (int p = parts - 1; p >= 0; --p) value += float(part[p][lane / 64].element[part[p][0].place(row, lane % 64)]);
        return value;
    }

private:
    WEFT_FUNCTION const Across& across(int p, int lane) const { return reinterpret_cast<const Across&>(part[p][lane / 64]); }
};

// sums += a b for 16 rows and twice 8 columns, the smallest products first.
template <int lefts, int rights>
WEFT_FUNCTION void multiply_parts(float (&first)[4], float (&second)[4], const uint32_t (&a)[lefts][4],
                                  const uint32_t (&b)[rights][4]) {
#pragma unroll
    for (int sum = lefts + rights - 2 < exact_parts - 1 ? lefts + rights - 2 : exact_parts - 1; sum >= 0; --sum) {
#pragma unroll
        for (int p = 0; p < lefts; ++p) {
            const int q = sum - p;
            if (q < 0 || q >= rights) continue;
            mma<bfloat16>(first, a[p], {b[q][0], b[q][1]});
            mma<bfloat16>(second, a[p], {b[q][2], b[q][3]});
        }
    }
}

template <int count> WEFT_FUNCTION bool all_finite(const float (&values)[count][4]) {
    bool found = true;
#pragma unroll
    for (int r = 0; r < count; ++r) {
#pragma unroll
        for (int v = 0; v < 4; ++v) found = found && is_finite(values[r][v]);
    }
    return found;
}

// What is left, at later points of a chunk, of what its points add: products of the decays in between, and of the weight.
struct ChunkWeights {
    static constexpr int pitch = 24;  // rows of 16, so that no bank is met twice
    float near[4][16][pitch];  // by block of 16 points, later point, earlier point: before the later one
    float before[64], after[64];  // from the beginning of the block to a point; from after a point to the block's end, weighted
    float block[4];

    // By at least 128 threads.
    WEFT_FUNCTION void weigh(const float (&decay)[64], const float (&weight)[64]) {
        const int point = threadIdx.x % 64, own = point % 16, first = point - own;
        float decays[16];  // all of them before anything is stored, which might be one of them
#pragma unroll
        for (int r = 0; r < 16; ++r) decays[r] = decay[first + r];
        if (threadIdx.x < 64) {
            float left = weight[point];
#pragma unroll
            for (int later = 0; later < 16; ++later) {
                near[first / 16][later][own] = left;
                if (later > own) left *= decays[later];
            }
            after[point] = left;
        } else if (threadIdx.x < 128) {
            float left = 1.0f;
#pragma unroll
            for (int earlier = 0; earlier < 16; ++earlier) {
                if (earlier < own) left *= decays[earlier];
            }
            before[point] = left;
            if (own == 15) block[first / 16] = left * decays[15];
        }
    }

    // What is left at a point of the states before the chunk.
    WEFT_FUNCTION float since_begin(int point) const {
        float left = before[point];
#pragma unroll
        for (int b = 2; b >= 0; --b) {
            if (b < point / 16) left *= block[b];
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
// states' rows are summed over, else their columns. A warp has 16 points and the sums from `first` on, eight a block.
template <bool over_rows, int blocks, int depth, int factors, typename States>
WEFT_FUNCTION void read_states(float (&sums)[blocks][4], const PartsTile<64, depth, factors>& factor, const States& states,
                               int first) {
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
}

// The same of the states before each of the points, times `before` of it, and of the product that the point adds, times `own`.
// inner and outer: the vectors of the products, the one that has the side that is summed over first. Returns whether all are
// finite: otherwise something is not that others do not have.
template <bool owns, int blocks, int depth, int factors, int inners, int width, int outers>
WEFT_FUNCTION bool read_points(float (&sums)[blocks][4], const PartsTile<64, depth, factors>& factor,
                               const PartsTile<64, depth, inners>& inner, const PartsTile<64, width, outers>& outer,
                               const ChunkWeights& weights, const float (&before)[64], const float (&own)[64], int first) {
    const int warp = threadIdx.x / 32 % 4, q = threadIdx.x % 4, point = threadIdx.x % 32 / 4;
    float until[2], here[2];  // of the warp's block, what is left of what is before it; of a point, what is taken of its own
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int own_point = warp * 16 + h * 8 + point;
        const float since = before[own_point] * weights.since_begin(own_point);
        until[h] = before[own_point] * weights.before[own_point];
        here[h] = owns ? own[own_point] : 0.0f;
#pragma unroll
        for (int r = 0; r < blocks; ++r) {
            sums[r][2 * h] *= since;
            sums[r][2 * h + 1] *= since;
        }
    }
#pragma unroll 1
    for (int j = warp; j >= 0; --j) {
        float scores[2][4] = {};
#pragma unroll
        for (int k = 0; k < depth; k += 16) {
            uint32_t a[factors][4], b[inners][4];
#pragma unroll
            for (int p = 0; p < factors; ++p) factor.left(p, warp * 16, k, a[p]);
#pragma unroll
            for (int p = 0; p < inners; ++p) inner.right(p, j * 16, k, b[p]);
            multiply_parts(scores[0], scores[1], a, b);
        }
        uint32_t a[exact_parts][4];
#pragma unroll
        for (int h = 0; h < 4; ++h) {
            const int later = h % 2 * 8 + point;
            float pair[2];
#pragma unroll
            for (int v = 0; v < 2; ++v) {
                const int earlier = h / 2 * 8 + q * 2 + v;
                const float score = scores[h / 2][h % 2 * 2 + v];
                if (j < warp) pair[v] = score * (until[h % 2] * weights.after[j * 16 + earlier]);
                else if (earlier < later) pair[v] = score * (before[warp * 16 + later] * weights.near[warp][later][earlier]);
                else pair[v] = owns && earlier == later ? score * here[h % 2] : 0.0f;
            }
            uint32_t words[exact_parts];
            split(pair[0], pair[1], words);
#pragma unroll
            for (int p = 0; p < exact_parts; ++p) a[p][h] = words[p];
        }
        if (j < warp) {
            until[0] *= weights.block[j];
            until[1] *= weights.block[j];
        }
#pragma unroll
        for (int r = 0; r < blocks; r += 2) {
            uint32_t b[outers][4];
#pragma unroll
            for (int p = 0; p < outers; ++p) outer.right_across(p, first + r * 8, j * 16, b[p]);
            multiply_parts(sums[r], sums[r + 1], a, b);
        }
    }
    return all_finite(sums);
}

// What early states, which were scanned from the last point of a chunk on, and late ones make together at its points: sums of
// their products. Early points are those of low numbers here: what they add to late states is there at the points after them,
// and what these add to early states at the points before.
struct MeetingTable {
    float cell[64][65];  // by the point that adds to early states, and the one that adds to late ones; the last one is for all before
};

struct ChunkMeeting {
    float of_early[4][64], of_late[4][64], of_both[32];

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
                for (int v = 0; v < 4; ++v) {
                    total[v / 2] += sum[r][v] * right.get(warp * 16 + v / 2 * 8 + lane / 4, column + r * 8 + lane % 4 * 2 + v % 2);
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
    WEFT_FUNCTION static void dots(float (&found)[4][64], const float (&sums)[blocks][4], const PartsTile<64, width, parts>& other,
                                   int first) {
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int point = warp * 16 + h * 8 + lane / 4;
            float total = 0.0f;
#pragma unroll
            for (int r = 0; r < blocks; ++r) {
#pragma unroll
                for (int v = 0; v < 2; ++v) total += sums[r][2 * h + v] * other.get(point, first + r * 8 + lane % 4 * 2 + v);
            }
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            if (lane % 4 == 0) found[threadIdx.x / 128][point] = total;
        }
    }

    // table = the products of what two points add: of both sides.
    template <int rows, int width, int p0, int p1, int p2, int p3>
    WEFT_FUNCTION static void multiply(MeetingTable& table, const PartsTile<64, rows, p0>& early_left,
                                       const PartsTile<64, width, p1>& early_right, const PartsTile<64, rows, p2>& late_left,
                                       const PartsTile<64, width, p3>& late_right, int groups) {
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
#pragma unroll 1
        for (int j = threadIdx.x / 128; j <= warp; j += groups) {
            float one[2][4] = {}, other[2][4] = {};
            scores(one, early_left, late_left, warp * 16, j * 16);
            scores(other, early_right, late_right, warp * 16, j * 16);
#pragma unroll
            for (int r = 0; r < 2; ++r) {
#pragma unroll
                for (int v = 0; v < 4; ++v) {
                    table.cell[warp * 16 + v / 2 * 8 + lane / 4][j * 16 + r * 8 + lane % 4 * 2 + v % 2] = one[r][v] * other[r][v];
                }
            }
        }
    }

    // A thread for each point that adds to late states, and one for all before, goes through the points from the last one on,
    // with what early states make with what it adds. factors: of both states, of early states and what a point adds to late
    // ones, of what it adds to early ones and late states, of what it adds to both.
    WEFT_FUNCTION void go(MeetingTable& table, const ChunkWeights& weights, const float (&decay)[64], const float (&weight)[64],
                          const float (&both)[64], const float (&early)[64], const float (&late)[64], const float (&added)[64],
                          int warps) const {
        const int own = threadIdx.x < 64 ? int(threadIdx.x) : -1, last = own < 0 ? -1 : own / 16;
        if (threadIdx.x > 64) return;
        float state = 0.0f;
        if (own < 0) {
            for (int w = 0; w < warps; ++w) state += of_both[w];
        } else {
            for (int g = 0; g < warps / 4; ++g) state += of_early[g][own];
        }
#pragma unroll 1
        for (int b = 3; b >= (last < 0 ? 0 : last); --b) {
            float far = own < 0 ? 1.0f : weights.after[own];
            for (int between = b - 1; between > last; --between) far *= weights.block[between];
            float sums[16];  // stored after all is loaded
#pragma unroll
            for (int r = 15; r >= 0; --r) {
                const int point = b * 16 + r;
                float product = own < 0 ? of_late[0][point] : table.cell[point][own];
                if (own < 0) {
                    for (int g = 1; g < warps / 4; ++g) product += of_late[g][point];
                }
                const float left = b == last ? weights.near[b][r][own % 16] : weights.before[point] * far;
                sums[r] = left * (both[point] * state + late[point] * product);
                if (point == own) sums[r] = early[point] * state + added[point] * product;
                if (point > own) state = decay[point] * state + weight[point] * product;
            }
#pragma unroll
            for (int r = 0; r < 16; ++r) {
                if (b * 16 + r >= own) table.cell[b * 16 + r][own < 0 ? 64 : own] = sums[r];
            }
        }
    }
    // The sum at a point.
    WEFT_FUNCTION static float sum(const MeetingTable& table, int point) {
        float sum = table.cell[point][64];
#pragma unroll 16
        for (int n = 0; n < 64; ++n) sum += n <= point ? table.cell[point][n] : 0.0f;
        return sum;
    }

private:
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

// The states of a block, `rows` x `width` of them in float32: warps have 16 rows each, those of `row_groups` warps further on
// too, and those of `column_groups` share the columns.
template <int rows, int width, int warps> struct OuterStates {
    static constexpr int row_groups = rows / 16 < warps ? rows / 16 : warps;
    static constexpr int column_groups = row_groups * 4 <= warps && width % 64 == 0 ? 4 : row_groups * 2 <= warps && width % 32 == 0 ? 2 : 1;
    static constexpr int blocks = (rows / 16 + row_groups - 1) / row_groups, columns = width / 8 / column_groups;
    static constexpr int count = blocks * columns;
    float state[count][4];

    WEFT_FUNCTION static int first_row(int b) { return (threadIdx.x / 32 % row_groups + b * row_groups) * 16; }
    WEFT_FUNCTION static int first_column() { return threadIdx.x / 32 / row_groups * (8 * columns); }
    WEFT_FUNCTION static bool has(int b) {
        if (row_groups * column_groups < warps && threadIdx.x / 32 >= row_groups * column_groups) return false;
        return rows / 16 % row_groups == 0 || first_row(b) < rows;
    }

    // Call back with the row and the column of each state, and the state.
    template <typename F> WEFT_FUNCTION void each(const F& use) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < count; ++r) {
            if (!has(r / columns)) continue;
#pragma unroll
            for (int v = 0; v < 4; ++v) {
                use(first_row(r / columns) + lane / 4 + v / 2 * 8, first_column() + r % columns * 8 + lane % 4 * 2 + v % 2, state[r][v]);
            }
        }
    }

    WEFT_FUNCTION void clear() {
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] = 0.0f;
        }
    }

    // To where other blocks, or other warps, find them.
    WEFT_FUNCTION void leave(float* memory) const {
#pragma unroll
        for (int r = 0; r < count; ++r) {
            *reinterpret_cast<Packet<float, 4>*>(memory + (r * 32 * warps + threadIdx.x) * 4) =
                {state[r][0], state[r][1], state[r][2], state[r][3]};
        }
    }
    // After other points, of which this is what they add, and what they leave.
    WEFT_FUNCTION void follow(const float* memory, float left) {
#pragma unroll
        for (int r = 0; r < count; ++r) {
            const auto added = *reinterpret_cast<const Packet<float, 4>*>(memory + (r * 32 * warps + threadIdx.x) * 4);
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] = left * state[r][v] + added.lane[v];
        }
    }
    WEFT_FUNCTION void share(PartsTile<rows, width, exact_parts>& tile) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < count; ++r) {
            if (!has(r / columns)) continue;
#pragma unroll
            for (int v = 0; v < 4; v += 2) {
                const int column = first_column() + r % columns * 8 + lane % 4 * 2;
                tile.set(first_row(r / columns) + lane / 4 + v * 4, column, state[r][v], state[r][v + 1]);
            }
        }
    }

    WEFT_FUNCTION void find(const float* memory) {
        clear();
        follow(memory, 0.0f);
    }
    // The sum over all states of their products with others, by warps.
    WEFT_FUNCTION float products(const OuterStates& other) const {
        float sum = 0.0f;
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) sum += state[r][v] * other.state[r][v];
        }
        if (!has(0)) sum = 0.0f;
#pragma unroll
        for (int far = 1; far < 32; far *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, far);
        return sum;
    }

    // next = the states after the points of a chunk; whether all are finite.
    template <int lefts, int rights>
    WEFT_FUNCTION bool after(float (&next)[count][4], const PartsTile<64, rows, lefts>& left,
                             const PartsTile<64, width, rights>& right, const ChunkWeights& weights) const {
        const int q = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) next[r][v] = 0.0f;
        }
#pragma unroll 1
        for (int k = 0; k < 4; ++k) {
            float ends[4];
            const float end = weights.to_end(k);
#pragma unroll
            for (int v = 0; v < 4; ++v) ends[v] = weights.after[k * 16 + v / 2 * 8 + q * 2 + v % 2] * end;
#pragma unroll
            for (int b = 0; b < blocks; ++b) {
                if (!has(b)) continue;
                uint32_t given[lefts][4], own[exact_parts][4];
#pragma unroll
                for (int p = 0; p < lefts; ++p) left.left_across(p, first_row(b), k * 16, given[p]);
#pragma unroll
                for (int h = 0; h < 4; ++h) {
                    float first = 0.0f, second = 0.0f;
#pragma unroll
                    for (int p = lefts - 1; p >= 0; --p) {
                        float x, y;
                        unpack<bfloat16>(given[p][h], x, y);
                        first += x;
                        second += y;
                    }
                    uint32_t words[exact_parts];
                    split(first * ends[h / 2 * 2], second * ends[h / 2 * 2 + 1], words);
#pragma unroll
                    for (int p = 0; p < exact_parts; ++p) own[p][h] = words[p];
                }
#pragma unroll
                for (int c = 0; c < columns; c += 2) {
                    uint32_t other[rights][4];
#pragma unroll
                    for (int p = 0; p < rights; ++p) right.right_across(p, first_column() + c * 8, k * 16, other[p]);
                    multiply_parts(next[b * columns + c], next[b * columns + c + 1], own, other);
                }
            }
        }
        const float total = weights.total();
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) next[r][v] = total * state[r][v] + next[r][v];
        }
        return all_finite(next);
    }
    WEFT_FUNCTION void take(const float (&next)[count][4]) {
#pragma unroll
        for (int r = 0; r < count; ++r) {
#pragma unroll
            for (int v = 0; v < 4; ++v) state[r][v] = next[r][v];
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
        for (int n = threadIdx.x; n < rows * width; n += 32 * warps) {
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
        for (int n = threadIdx.x; n < (over_rows ? columns_here : rows_here); n += 32 * warps) {
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

}  // namespace weft
