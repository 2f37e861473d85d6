// Matrices of 8x8 16-bit elements between shared memory and registers, and matrix products of a warp, for the simulator.
//
// Each lane tells the engine of its own row, then all meet: the last to come moves the bytes, or multiplies, for all 32.
// Fragments are those of weft.layout.atoms: ldmatrix, stmatrix, mma.
#pragma once
#include "weft/address.cuh"
#include "weft/raw.hpp"

namespace weft {

namespace detail {

// Where lanes are missing, which the engine has told, nothing is done.
WEFT_HOST_FUNCTION bool all_here(void* const* records) {
    for (int lane = 0; lane < 32; ++lane) {
        if (!records[lane]) return false;
    }
    return true;
}

// ---------------------------------------------------------------- matrices of 8x8

struct MatrixRow {
    char* row;
    uint32_t* registers;
    const char* from[4][2];  // of each matrix, where this lane's two elements come from
};

// The places of lane l's two elements of a matrix.
struct MatrixPlaces {
    int row[2], column[2];
    MatrixPlaces() = default;
    WEFT_HOST_FUNCTION MatrixPlaces(int lane, bool transposed) {
        for (int half = 0; half < 2; ++half) {
            const int along = 2 * (lane % 4) + half;
            row[half] = transposed ? along : lane / 4;
            column[half] = transposed ? lane / 4 : along;
        }
    }
};

template <int count, bool transposed> WEFT_UNWATCHED void load_matrices(void* const* records) {
    if (!all_here(records)) return;
    const auto lanes = reinterpret_cast<MatrixRow* const*>(records);
    for (int lane = 0; lane < 32; ++lane) {
        const MatrixPlaces at(lane, transposed);
        for (int m = 0; m < count; ++m) {
            uint16_t pair[2];
            for (int half = 0; half < 2; ++half) {
                const char* const from = lanes[8 * m + at.row[half]]->row + 2 * at.column[half];
                lanes[lane]->from[m][half] = from;
                __builtin_memcpy(&pair[half], from, 2);
            }
            lanes[lane]->registers[m] = pair[0] | uint32_t(pair[1]) << 16;
        }
    }
}

template <int count, bool transposed> WEFT_UNWATCHED void store_matrices(void* const* records) {
    if (!all_here(records)) return;
    const auto lanes = reinterpret_cast<MatrixRow* const*>(records);
    for (int lane = 0; lane < 32; ++lane) {
        const MatrixPlaces at(lane, transposed);
        for (int m = 0; m < count; ++m) {
            const uint32_t both = lanes[lane]->registers[m];
            for (int half = 0; half < 2; ++half) {
                const uint16_t element = uint16_t(both >> 16 * half);
                __builtin_memcpy(lanes[8 * m + at.row[half]]->row + 2 * at.column[half], &element, 2);
            }
        }
    }
}

template <bool transposed, int count> WEFT_HOST_FUNCTION void load_matrix(uint32_t (&r)[count], const void* row) {
    if (weft_self().linear % 32 < 8 * count) weft_shared_row(row, false);
    MatrixRow own{static_cast<char*>(const_cast<void*>(row)), r, {}};
    weft_together(&own, load_matrices<count, transposed>);
    // what a lane gets it reads, whichever lane gave the address
    for (int m = 0; m < count; ++m) {
        for (int half = 0; half < 2; ++half) {
            if (own.from[m][half]) weft_row_part(own.from[m][half], 2);
        }
    }
}
template <bool transposed, int count> WEFT_HOST_FUNCTION void store_matrix(void* row, const uint32_t (&r)[count]) {
    if (weft_self().linear % 32 < 8 * count) weft_shared_row(row, true);
    MatrixRow own{static_cast<char*>(row), const_cast<uint32_t*>(r), {}};
    weft_together(&own, store_matrices<count, transposed>);
}

}  // namespace detail

WEFT_HOST_FUNCTION void load_matrix(uint32_t (&r)[1], const void* row) { detail::load_matrix<false>(r, row); }
WEFT_HOST_FUNCTION void load_matrix(uint32_t (&r)[2], const void* row) { detail::load_matrix<false>(r, row); }
WEFT_HOST_FUNCTION void load_matrix(uint32_t (&r)[4], const void* row) { detail::load_matrix<false>(r, row); }
WEFT_HOST_FUNCTION void load_matrix_transposed(uint32_t (&r)[1], const void* row) { detail::load_matrix<true>(r, row); }
WEFT_HOST_FUNCTION void load_matrix_transposed(uint32_t (&r)[2], const void* row) { detail::load_matrix<true>(r, row); }
WEFT_HOST_FUNCTION void load_matrix_transposed(uint32_t (&r)[4], const void* row) { detail::load_matrix<true>(r, row); }

#if __CUDA_ARCH__ >= 900
WEFT_HOST_FUNCTION void store_matrix(void* row, const uint32_t (&r)[1]) { detail::store_matrix<false>(row, r); }
WEFT_HOST_FUNCTION void store_matrix(void* row, const uint32_t (&r)[2]) { detail::store_matrix<false>(row, r); }
WEFT_HOST_FUNCTION void store_matrix(void* row, const uint32_t (&r)[4]) { detail::store_matrix<false>(row, r); }
WEFT_HOST_FUNCTION void store_matrix_transposed(void* row, const uint32_t (&r)[1]) { detail::store_matrix<true>(row, r); }
WEFT_HOST_FUNCTION void store_matrix_transposed(void* row, const uint32_t (&r)[2]) { detail::store_matrix<true>(row, r); }
WEFT_HOST_FUNCTION void store_matrix_transposed(void* row, const uint32_t (&r)[4]) { detail::store_matrix<true>(row, r); }
#endif

// ---------------------------------------------------------------- mma<T>: C[16, 8] += A[16, k] B[8, k]

struct tfloat32;

// Rounded to nearest, halves away from zero, to 10 bits of mantissa.
WEFT_HOST_FUNCTION uint32_t tfloat32_bits(float value) {
    const uint32_t bits = bits_of(value);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fffffffu : (bits + 0x1000u) & 0xffffe000u;
}

namespace detail {

template <typename T> inline constexpr bool is_tfloat32 = false;
template <> inline constexpr bool is_tfloat32<tfloat32> = true;

// The elements that share a register of an operand.
template <typename T> struct operand_of {
    static constexpr int packed = 2;
    static WEFT_HOST_FUNCTION double element(uint32_t bits, int half) {
        static_assert(std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, "a type that mma multiplies");
        T value;
        value.bits = uint16_t(bits >> 16 * half);
        return double(float(value));
    }
};
template <> struct operand_of<tfloat32> {
    static constexpr int packed = 1;
    static WEFT_HOST_FUNCTION double element(uint32_t bits, int) { return double(float_of(bits & 0xffffe000u)); }
};

template <typename T> struct operand_of_bytes {
    static constexpr int packed = 4;
    static WEFT_HOST_FUNCTION double element(uint32_t bits, int part) { return double(T(bits >> 8 * part)); }
};
template <> struct operand_of<int8_t> : operand_of_bytes<int8_t> {};
template <> struct operand_of<uint8_t> : operand_of_bytes<uint8_t> {};

// A double rounded once to float16: through a float that keeps in its last bit whether anything was cut off.
WEFT_HOST_FUNCTION uint16_t float16_bits_of_double(double value) {
    const float near = float(value);
    uint32_t bits = bits_of(near);
    if (double(near) != value && value == value) {
        if (std::fabs(double(near)) > std::fabs(value)) --bits;
        bits |= 1;
    }
    return float16_bits(float_of(bits));
}

template <typename C> struct MmaRecord {
    const uint32_t *a, *b;
    C* c;
};

// Accumulator v of four of a lane, as a number and back.
WEFT_HOST_FUNCTION double accumulator(const float* c, int v) { return double(c[v]); }
WEFT_HOST_FUNCTION double accumulator(const uint32_t* c, int v) {
    return double(float_of_float16(uint16_t(c[v / 2] >> 16 * (v % 2))));
}
WEFT_HOST_FUNCTION void set_accumulator(float* c, int v, double value) { c[v] = float(value); }
WEFT_HOST_FUNCTION double accumulator(const int32_t* c, int v) { return double(c[v]); }
WEFT_HOST_FUNCTION void set_accumulator(int32_t* c, int v, double value) { c[v] = int32_t(int64_t(value)); }  // that wraps
WEFT_HOST_FUNCTION void set_accumulator(uint32_t* c, int v, double value) {
    const uint32_t shift = 16 * (v % 2);
    c[v / 2] = (c[v / 2] & ~(0xffffu << shift)) | uint32_t(float16_bits_of_double(value)) << shift;
}

// The products are exact in double, their sum in the order of k nearly so, and each result is rounded once.
template <typename A, typename B, typename C, int a_registers> WEFT_UNWATCHED void multiply(void* const* records) {
    if (!all_here(records)) return;
    constexpr int packed = operand_of<A>::packed;
    constexpr int step = 4 * packed;  // of k, from one register of a lane to the next
    constexpr int k = a_registers / 2 * step;
    double a[16][k], b[8][k];
    for (int lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const MmaRecord<C>*>(records[lane]);
        for (int half = 0; half < packed; ++half) {
            const int column = packed * (lane % 4) + half;
            for (int r = 0; r < a_registers; ++r) {
                a[lane / 4 + 8 * (r % 2)][column + r / 2 * step] = operand_of<A>::element(own.a[r], half);
            }
            for (int r = 0; r < a_registers / 2; ++r) b[lane / 4][column + r * step] = operand_of<B>::element(own.b[r], half);
        }
    }
    for (int lane = 0; lane < 32; ++lane) {
        const auto& own = *static_cast<const MmaRecord<C>*>(records[lane]);
        for (int v = 0; v < 4; ++v) {
            const double* row = a[lane / 4 + 8 * (v / 2)];
            const double* column = b[2 * (lane % 4) + v % 2];
            double sum = 0;
            for (int i = 0; i < k; ++i) sum += row[i] * column[i];
            set_accumulator(own.c, v, accumulator(own.c, v) + sum);
        }
    }
}

// Of doubles, a fused multiply-add after the other, in the order of k.
struct DoubleMmaRecord {
    const double *a, *b;
    double* c;
};
WEFT_UNWATCHED inline void multiply_doubles(void* const* records) {
    if (!all_here(records)) return;
    const auto lanes = reinterpret_cast<DoubleMmaRecord* const*>(records);
    for (int lane = 0; lane < 32; ++lane) {
        for (int v = 0; v < 4; ++v) {
            double& sum = lanes[lane]->c[v];
            for (int k = 0; k < 8; ++k) {
                const double left = lanes[lane / 4 * 4 + k % 4]->a[k / 4 * 2 + v / 2];
                sum = std::fma(left, lanes[(2 * (lane % 4) + v % 2) * 4 + k % 4]->b[k / 4], sum);
            }
        }
    }
}

template <typename A, typename B = A, typename C, int c_registers, int a_registers, int b_registers>
WEFT_HOST_FUNCTION void mma(C (&c)[c_registers], const uint32_t (&a)[a_registers], const uint32_t (&b)[b_registers]) {
    weft_check_registers(a, sizeof a, "operand A of mma");
    weft_check_registers(b, sizeof b, "operand B of mma");
    weft_check_registers(c, sizeof c, "accumulator of mma");
    MmaRecord<C> own{a, b, c};
    weft_together(&own, multiply<A, B, C, a_registers>);
}

}  // namespace detail

// float16 and bfloat16: k = 16; tfloat32: k = 8.
template <typename T> WEFT_HOST_FUNCTION void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    detail::mma<T>(c, a, b);
}

// float16 and bfloat16: k = 8; tfloat32: k = 4.
template <typename T> WEFT_HOST_FUNCTION void mma(float (&c)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
    detail::mma<T>(c, a, b);
}

// int8_t and uint8_t, each operand its own, four elements a register: k = 32. Sums wrap.
template <typename A, typename B = A>
WEFT_HOST_FUNCTION void mma(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    detail::mma<A, B>(c, a, b);
}

// double: k = 8.
template <typename T> WEFT_HOST_FUNCTION void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
    weft_check_registers(a, sizeof a, "operand A of mma");
    weft_check_registers(b, sizeof b, "operand B of mma");
    weft_check_registers(c, sizeof c, "accumulator of mma");
    detail::DoubleMmaRecord own{a, b, c};
    weft_together(&own, detail::multiply_doubles);
}

// float16 with a float16 accumulator, two elements a register: k = 16 and 8.
template <typename T> WEFT_HOST_FUNCTION void mma(uint32_t (&c)[2], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    static_assert(std::is_same_v<T, float16>, "only float16 accumulates in float16");
    detail::mma<T>(c, a, b);
}
template <typename T> WEFT_HOST_FUNCTION void mma(uint32_t (&c)[2], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
    static_assert(std::is_same_v<T, float16>, "only float16 accumulates in float16");
    detail::mma<T>(c, a, b);
}

}  // namespace weft
