// Matrices of 8x8 16-bit elements between shared memory and registers, and matrix products of a warp (mma.sync).
//
// Who holds what is in weft.layout.atoms: ldmatrix, stmatrix, mma. Two 16-bit elements share a register, the first in its
// low half. All the lanes of a warp call together.
#pragma once
#include "weft/address.cuh"

namespace weft {

// ---------------------------------------------------------------- load_matrix, store_matrix: 1, 2 or 4 matrices

// Lane i gives the address of row i % 8 of matrix i / 8: 16 bytes, a multiple of 16. Lanes past the last row are ignored, but
// must give a valid address. Lane l gets elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each matrix, or of column l / 4
// where transposed.

WEFT_FUNCTION void load_matrix(uint32_t (&r)[1], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                 : "=r"(r[0]) : "r"(detail::shared_address(row)) : "memory");
}
WEFT_FUNCTION void load_matrix(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(detail::shared_address(row)) : "memory");
}
WEFT_FUNCTION void load_matrix(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(detail::shared_address(row)) : "memory");
}
WEFT_FUNCTION void load_matrix_transposed(uint32_t (&r)[1], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                 : "=r"(r[0]) : "r"(detail::shared_address(row)) : "memory");
}
WEFT_FUNCTION void load_matrix_transposed(uint32_t (&r)[2], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                 : "=r"(r[0]), "=r"(r[1]) : "r"(detail::shared_address(row)) : "memory");
}
WEFT_FUNCTION void load_matrix_transposed(uint32_t (&r)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(detail::shared_address(row)) : "memory");
}

#if __CUDA_ARCH__ >= 900
WEFT_FUNCTION void store_matrix(void* row, const uint32_t (&r)[1]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"
                 : : "r"(detail::shared_address(row)), "r"(r[0]) : "memory");
}
WEFT_FUNCTION void store_matrix(void* row, const uint32_t (&r)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 : : "r"(detail::shared_address(row)), "r"(r[0]), "r"(r[1]) : "memory");
}
WEFT_FUNCTION void store_matrix(void* row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 : : "r"(detail::shared_address(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
WEFT_FUNCTION void store_matrix_transposed(void* row, const uint32_t (&r)[1]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};"
                 : : "r"(detail::shared_address(row)), "r"(r[0]) : "memory");
}
WEFT_FUNCTION void store_matrix_transposed(void* row, const uint32_t (&r)[2]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 : : "r"(detail::shared_address(row)), "r"(r[0]), "r"(r[1]) : "memory");
}
WEFT_FUNCTION void store_matrix_transposed(void* row, const uint32_t (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 : : "r"(detail::shared_address(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
#endif

// ---------------------------------------------------------------- mma<T>: C[16, 8] += A[16, k] B[8, k]

// The type of operands of 32 bits, of which the product uses the upper 19. It has no values of its own.
struct tfloat32;

// Rounded to nearest, halves away from zero: the operand that stands for `value`.
WEFT_FUNCTION uint32_t tfloat32_bits(float value) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

namespace detail {
template <typename T> struct mma_name;
template <> struct mma_name<float16> { static constexpr char text[] = "f16"; };
template <> struct mma_name<bfloat16> { static constexpr char text[] = "bf16"; };
template <> struct mma_name<int8_t> { static constexpr char text[] = "s8"; };
template <> struct mma_name<uint8_t> { static constexpr char text[] = "u8"; };
template <typename T> inline constexpr bool is_tfloat32 = false;
template <> inline constexpr bool is_tfloat32<tfloat32> = true;
}  // namespace detail

// float16 and bfloat16: k = 16; tfloat32: k = 8.
template <typename T> WEFT_FUNCTION void mma(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (detail::is_tfloat32<T>) {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
            " {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.%10.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
            " {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(detail::mma_name<T>::text));
    }
}

// float16 and bfloat16: k = 8; tfloat32: k = 4.
template <typename T> WEFT_FUNCTION void mma(float (&c)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
    if constexpr (detail::is_tfloat32<T>) {
        asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
    } else {
        asm("mma.sync.aligned.m16n8k8.row.col.f32.%7.%7.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]), "C"(detail::mma_name<T>::text));
    }
}

// int8_t and uint8_t, each operand its own, four elements a register: k = 32. Sums wrap.
template <typename A, typename B = A>
WEFT_FUNCTION void mma(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.%10.%11.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(detail::mma_name<A>::text),
          "C"(detail::mma_name<B>::text));
}

// double: k = 8.
template <typename T> WEFT_FUNCTION void mma(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(c[2 * h]), "+d"(c[2 * h + 1]) : "d"(a[2 * k + h]), "d"(b[k]));
        }
    }
#endif
}

// float16 with a float16 accumulator, two elements a register: k = 16 and 8.
template <typename T> WEFT_FUNCTION void mma(uint32_t (&c)[2], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f16.%8.%8.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "C"(detail::mma_name<T>::text));
}
template <typename T> WEFT_FUNCTION void mma(uint32_t (&c)[2], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f16.%5.%5.f16 {%0, %1}, {%2, %3}, {%4}, {%0, %1};"
                 : "+r"(c[0]), "+r"(c[1])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]), "C"(detail::mma_name<T>::text));
}

}  // namespace weft
