// Tiles of operands in shared memory, swizzled as matrix instructions read them.
#pragma once
#include "weft/async.cuh"
#include "weft/matrix.cuh"
#include "weft/memory.cuh"
#if __CUDA_ARCH__ >= 900
#include "weft/bulk.cuh"
#include "weft/wgmma.cuh"
#endif

namespace weft {

// A number that all threads of a warp have, as the compiler then knows: what is made of it takes no registers of theirs, and one
// instruction for each matrix of shared memory.
WEFT_FUNCTION int32_t uniform(int32_t value) { return __shfl_sync(0xffffffffu, value, 0); }

// Points of each of `rows` rows, in lines of 128 bytes: a line has the points of a row (along_points), or a point of as many
// rows; of these there may be any multiple of points that an instruction takes.
// 16 bytes of neighbours along a line are a packet; packets are swizzled by the line, so that no bank is met twice: in the one
// way that copies, ldmatrix and wgmma have in common, or, of doubles, by which half a warp reads four lines.
template <typename T, int rows, bool along_points, int count = 128 / sizeof(T)> struct MatrixTile {
    static constexpr int points = count, line = 128 / sizeof(T), packet = 16 / sizeof(T);
    static_assert(!along_points || points == line, "a line has as many points");
    static_assert(along_points || sizeof(T) > 1, "bytes lie along the points");
    alignas(1024) T element[rows * points];

    WEFT_FUNCTION static int place(int row, int point) {
        constexpr int lines = sizeof(T) == 8 ? 4 : 8, far = 8 / lines * packet;
        if constexpr (along_points) return row * line + (point ^ row % lines * far);
        else return row / line * (line * points) + point * line + (row % line ^ point % lines * far);
    }

    // A packet, or fewer elements, = the neighbours from `from` on, a multiple of their bytes, if they are there; or zeros. A copy of
    // the thread's.
    template <int many = packet> WEFT_FUNCTION void copy(int row, int point, const T* from, bool here) {
        copy_async_or_zero<many * sizeof(T)>(&element[place(row, point)], from, here);
    }

    // Of a warp: 16 rows and 32 bytes of points as the left operand of `mma`, and as two right ones of 8 rows.
    WEFT_FUNCTION void left(int row, int point, uint32_t (&a)[4], int thread = threadIdx.x) const {
        const int lane = thread % 32;
        if constexpr (along_points) load_matrix(a, &element[place(row + lane % 16, point + lane / 16 * packet)]);
        else load_matrix_transposed(a, &element[place(row + lane / 8 % 2 * 8, point + lane % 8 + lane / 16 * 8)]);
    }
    WEFT_FUNCTION void right(int row, int point, uint32_t (&b)[4]) const {
        const int lane = threadIdx.x % 32;
        if constexpr (along_points) load_matrix(b, &element[place(row + lane % 8 + lane / 16 * 8, point + lane / 8 % 2 * packet)]);
        else load_matrix_transposed(b, &element[place(row + lane / 16 * 8, point + lane % 8 + lane / 8 % 2 * 8)]);
    }
    // The same of doubles, of 8 points: multiples of 16 and of 8 are the first row and point. So the swizzle is of the lane, and the
    // rest of a place a number that the instruction has.
    WEFT_FUNCTION void left(int row, int point, double (&a)[4]) const {
#pragma unroll
        for (int r = 0; r < 4; ++r) a[r] = element[place_of_lane(row, point, r % 2, r / 2)];
    }
    WEFT_FUNCTION void right(int row, int point, double (&b)[4]) const {
#pragma unroll
        for (int r = 0; r < 4; ++r) b[r] = element[place_of_lane(row, point, r / 2, r % 2)];
    }
    WEFT_FUNCTION static int place_of_lane(int row, int point, int down, int after) {
        const int across = threadIdx.x % 4, below = threadIdx.x % 32 / 4;
        if constexpr (along_points) return (row + below + 8 * down) * line + across + (point / 4 + after ^ below % 4) * 4;
        else return row * points + (point + across + 4 * after) * line + (below + 8 * down ^ across * 4);
    }

#if __CUDA_ARCH__ >= 900
    // 32 bytes of points of the rows from `row` on, a multiple of 64, as an operand of `wgmma`.
    WEFT_FUNCTION SharedMatrix matrix(int row, int point) const {
        if constexpr (along_points) return shared_matrix<128>(element + row * line, 16, 1024).advanced(point * sizeof(T));
        else return shared_matrix<128>(element + row * points, line * points * sizeof(T), 1024).advanced(point * 128);
    }
#endif
};

// A square of which each of the four threads of a quad, this one number q, has a line: from here on it has a column.
template <typename T> WEFT_FUNCTION void exchange_square(T (&own)[4], int q) {
    // what belongs to the neighbours at distance 1, then at distance 2, changes places with theirs
#pragma unroll
    for (int far = 1; far <= 2; far *= 2) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (i & far) continue;
            const bool high = q & far;
            const T given = high ? own[i] : own[i + far];
            const T taken = __shfl_xor_sync(0xffffffffu, given, far);
            own[i] = high ? taken : own[i];
            own[i + far] = high ? own[i + far] : taken;
        }
    }
}

// Sums of a warpgroup's products, of which a thread has the columns 8 r + 2 q + v of its rows, q its place in its quad: from here
// on it has 32 g + 8 q + 2 i + v in their places, r = 4 g + i. So it has eight neighbours, where it had two.
template <typename T, int count> WEFT_FUNCTION void exchange_quads(T (&sums)[count]) {
    static_assert(count % 16 == 0, "columns in runs of 32");
#pragma unroll
    for (int first = 0; first < count; first += 16) {
#pragma unroll
        for (int v = 0; v < 4; ++v) {
            T own[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) own[i] = sums[first + 4 * i + v];
            exchange_square(own, threadIdx.x % 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[first + 4 * i + v] = own[i];
        }
    }
}

// The other way round, of bytes that lie in memory: of two rows, where a thread had eight neighbours, 8 q + 2 i + v, it has the
// columns 8 i + 2 q + v of products.
WEFT_FUNCTION void exchange_pairs(Run<boolean, 8>& first, Run<boolean, 8>& second) {
    uint32_t own[4];  // a pair of each row
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const uint32_t a = first.four[i / 2], b = second.four[i / 2];
        own[i] = i % 2 ? a >> 16 | (b & 0xffff0000u) : (a & 0xffffu) | b << 16;
    }
    exchange_square(own, threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        first.four[i / 2] = (own[i] & 0xffffu) | own[i + 1] << 16;
        second.four[i / 2] = own[i] >> 16 | (own[i + 1] & 0xffff0000u);
    }
}

namespace detail {

// Which of eight bytes are not 0, a bit each.
WEFT_FUNCTION uint32_t marks(const Run<boolean, 8>& run) {
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const uint32_t high = ((run.four[i] & 0x7f7f7f7fu) + 0x7f7f7f7fu | run.four[i]) & 0x80808080u;
        found |= (high * 0x00204081u >> 28) << i * 4;
    }
    return found;
}

}  // namespace detail

// Bytes of which memory has those of eight rows together: of the 16 rows of a warp's products, a thread has packets of the column
// pairs 8 k + r, v of its place in its quad, r its place among the quads. From here on it has, of each pair, a bit 16 v + 8 u for
// its rows r + 8 u.
template <int steps, int count>
WEFT_FUNCTION void exchange_columns(const Run<boolean, 8> (&packets)[steps][2][2], uint32_t (&pairs)[count]) {
    uint32_t own[steps];
#pragma unroll
    for (int k = 0; k < steps; ++k) {
        own[k] = 0;
#pragma unroll
        for (int v = 0; v < 2; ++v) own[k] |= (detail::marks(packets[k][v][0]) | detail::marks(packets[k][v][1]) << 8) << v * 16;
    }
    const int quad = threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < count; ++h) pairs[h] = __shfl_sync(0xffffffffu, own[h / 8], h % 8 * 4 + threadIdx.x % 4) >> quad;
}

}  // namespace weft
