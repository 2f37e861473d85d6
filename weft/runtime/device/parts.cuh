// Floats as sums of three numbers of bfloat16, whose products matrix instructions sum.
#pragma once
#include "weft/matrix.cuh"
#include "weft/memory.cuh"

namespace weft {

constexpr int exact_parts = 3;

// Call back with the parts of two factors whose products are not below float32's rounding, the smallest products first.
template <int lefts, int rights, typename F> WEFT_FUNCTION void each_product(const F& use) {
#pragma unroll
    for (int sum = lefts + rights - 2 < exact_parts - 1 ? lefts + rights - 2 : exact_parts - 1; sum >= 0; --sum) {
#pragma unroll
        for (int p = 0; p < lefts; ++p) {
            if (sum - p >= 0 && sum - p < rights) use(p, sum - p);
        }
    }
}

// Two numbers as pairs of what is nearest to each in bfloat16, to what is left of it, and to what is left then: nothing is left
// after that. Of what is no number, infinite, or beyond the largest bfloat16, some part is no number, and so is what is made of it.
WEFT_FUNCTION void nearest_parts(float first, float second, uint32_t (&parts)[exact_parts]) {
#pragma unroll
    for (int p = 0; p < exact_parts; ++p) {
        parts[p] = pack<bfloat16>(first, second);
        float a, b;
        unpack<bfloat16>(parts[p], a, b);
        first -= a;
        second -= b;
    }
}

// `points` points of each of `rows` rows of an operand, as parts. Where memory brings `along` points of a row together, a line has
// the points of a row (0: a point of as many rows). 16 bytes of neighbours along a line are a packet; packets are swizzled by the
// line, so that neither what threads put nor ldmatrix meets a bank twice.
template <int points, int rows, int along = 0> struct PartsOfFloats {
    static constexpr int packet = 8, line = along ? points : rows, packets = line / packet < 8 ? line / packet : 8;
    alignas(16) bfloat16 element[exact_parts][points * rows];

    WEFT_FUNCTION static int place(int row, int point) {
        const int at = along ? point : row, which = along ? row : point;
        return which * line + (at ^ which / (8 / packets) % packets * packet);
    }

    // Neighbouring points of a row = run.
    template <int count> WEFT_FUNCTION void put_points(int point, int row, const float (&run)[count]) { put(row, point, run); }
    // A point of neighbouring rows = run.
    template <int count> WEFT_FUNCTION void put_rows(int point, int row, const float (&run)[count]) { put(row, point, run); }

    // Of a warp: 16 rows and 16 points of a part as the left operand of `mma`, and as two right ones of 8 rows.
    WEFT_FUNCTION void left(int part, int row, int point, uint32_t (&a)[4]) const {
        const int lane = threadIdx.x % 32;
        if constexpr (along) load_matrix(a, &element[part][place(row + lane % 16, point + lane / 16 * 8)]);
        else load_matrix_transposed(a, &element[part][place(row + lane / 8 % 2 * 8, point + lane % 8 + lane / 16 * 8)]);
    }
    WEFT_FUNCTION void right(int part, int row, int point, uint32_t (&b)[4]) const {
        const int lane = threadIdx.x % 32;
        if constexpr (along) load_matrix(b, &element[part][place(row + lane % 8 + lane / 16 * 8, point + lane / 8 % 2 * 8)]);
        else load_matrix_transposed(b, &element[part][place(row + lane / 16 * 8, point + lane % 8 + lane / 8 % 2 * 8)]);
    }

private:
    template <int count> WEFT_FUNCTION void put(int row, int point, const float (&run)[count]) {
        uint32_t parts[exact_parts];
        if constexpr (count == 1) {
            nearest_parts(run[0], 0.0f, parts);
#pragma unroll
            for (int p = 0; p < exact_parts; ++p) element[p][place(row, point)].bits = uint16_t(parts[p]);
        } else {
            Packet<uint32_t, count / 2> packet[exact_parts];
#pragma unroll
            for (int v = 0; v < count; v += 2) {
                nearest_parts(run[v], run[v + 1], parts);
#pragma unroll
                for (int p = 0; p < exact_parts; ++p) packet[p].lane[v / 2] = parts[p];
            }
#pragma unroll
            for (int p = 0; p < exact_parts; ++p) {
                *reinterpret_cast<Packet<uint32_t, count / 2>*>(&element[p][place(row, point)]) = packet[p];
            }
        }
    }
};

// sums += of 16 points, the products of 16 m rows from `row` on and of 8 n columns from `column` on. What the points make is
// summed by itself and added once: the instructions round their sums towards 0.
template <int m, int n, typename Left, typename Right>
WEFT_FUNCTION void multiply_floats(float (&sums)[m][n][4], const Left& left, const Right& right, int row, int column, int point) {
    uint32_t b[n / 2][exact_parts][4];
#pragma unroll
    for (int v = 0; v < n / 2; ++v) {
#pragma unroll
        for (int p = 0; p < exact_parts; ++p) right.right(p, column + v * 16, point, b[v][p]);
    }
#pragma unroll
    for (int u = 0; u < m; ++u) {
        uint32_t a[exact_parts][4];
#pragma unroll
        for (int p = 0; p < exact_parts; ++p) left.left(p, row + u * 16, point, a[p]);
        float own[n][4] = {};
        each_product<exact_parts, exact_parts>([&](const int p, const int q) {
#pragma unroll
            for (int v = 0; v < n; ++v) mma<bfloat16>(own[v], a[p], {b[v / 2][q][v % 2 * 2], b[v / 2][q][v % 2 * 2 + 1]});
        });
#pragma unroll
        for (int v = 0; v < n; ++v) {
#pragma unroll
            for (int r = 0; r < 4; ++r) sums[u][v][r] += own[v][r];
        }
    }
}

// Whether all sums of a thread are finite; one of them, and another value in its place, which the compiler does not know.
template <int m, int n> WEFT_FUNCTION bool all_finite(const float (&sums)[m][n][4]) {
    bool all = true;
#pragma unroll
    for (int k = 0; k < m * n * 4; ++k) all = all && is_finite(sums[k / 4 / n][k / 4 % n][k % 4]);
    return all;
}
template <int m, int n> WEFT_FUNCTION float one_of(const float (&sums)[m][n][4], int which) {
    float found = 0.0f;
#pragma unroll
    for (int k = 0; k < m * n * 4; ++k) found = k == which ? sums[k / 4 / n][k / 4 % n][k % 4] : found;
    return found;
}
template <int m, int n> WEFT_FUNCTION void set_one(float (&sums)[m][n][4], int which, float value) {
#pragma unroll
    for (int k = 0; k < m * n * 4; ++k) sums[k / 4 / n][k / 4 % n][k % 4] = k == which ? value : sums[k / 4 / n][k / 4 % n][k % 4];
}

}  // namespace weft
