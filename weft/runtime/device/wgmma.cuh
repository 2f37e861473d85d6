// Matrix products of a warpgroup: wgmma, asynchronous, operands in shared memory (sm_90a).
//
// The four warps of a warpgroup (threads 128 g to 128 g + 127) call together, all lanes of them. The order of things:
//   wgmma_fence(d);                       registers written by the threads are ready for the products
//   wgmma<bfloat16>(d, a, b, true);       any number of these
//   wgmma_commit();                       those since the last commit are a group
//   wgmma_wait<0>(d);                     all groups but the 0 latest are done: d may be read, a and b may be written
// Between, the threads neither read nor write d. Shared memory written by ordinary stores needs fence_proxy_async() by the
// writers and a barrier before; written by bulk copies, the wait at their Mbarrier is enough.
#pragma once
#include "weft/address.cuh"

namespace weft {

// ---------------------------------------------------------------- matrices in shared memory

// Whether k or the rows (m of A, n of B) are contiguous in shared memory.
enum class Major { k, rows };

// What wgmma reads as A [64, k] or B [n, k], k = 16 elements (8 of tfloat32).
struct SharedMatrix {
    uint64_t bits;

    // The same matrix so many bytes (a multiple of 16) further on: the next step of k within swizzled lines, for example.
    WEFT_FUNCTION SharedMatrix advanced(uint32_t bytes) const { return {bits + (bytes >> 4)}; }
};

// The matrix at `tile`, whose lines have a swizzle of 0 (none), 32, 64 or 128 bytes, as TMA writes them. Eight lines of that
// width (16 bytes for none) are an atom; in swizzled ones, atoms start at multiples of 8 times the width. The distances
// between atoms, in bytes (multiples of 16 below 2^18):
//
//   swizzle  contiguous  an atom is             leading: to the next atom along   stride: to the next atom along
//   32...    k           8 rows of 16...64 k    (not used)                        the rows
//   32...    rows        16...64 rows of 8 k    the rows                          k
//   0        k           8 rows of 8 k          k                                 the rows
//   0        rows        8 rows of 8 k          k                                 the rows
//
// (k and rows in elements of 16 bits.) Where there is no next atom the distance is not used.
template <int swizzle> WEFT_FUNCTION SharedMatrix shared_matrix(const void* tile, uint32_t leading, uint32_t stride) {
    static_assert(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128, "a swizzle of 0, 32, 64 or 128 bytes");
    constexpr uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    const uint64_t start = (detail::shared_address(tile) & 0x3ffffu) >> 4;
    return {start | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 | mode << 62};
}

// ---------------------------------------------------------------- order

namespace detail {
// The compiler moves nothing that reads or writes these registers across.
template <int count> WEFT_FUNCTION void pin(float (&registers)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(registers[i]) : : "memory");
}
template <int count> WEFT_FUNCTION void pin(int32_t (&registers)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+r"(registers[i]) : : "memory");
}
template <int count> WEFT_FUNCTION void pin(uint32_t (&registers)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+r"(registers[i]) : : "memory");
}
template <int steps, int count> WEFT_FUNCTION void pin(uint32_t (&registers)[steps][count]) {
#pragma unroll
    for (int i = 0; i < steps; ++i) pin(registers[i]);
}
}  // namespace detail

// Before the first product, and after threads have written registers of A or of accumulators. Name those registers.
template <typename... Registers> WEFT_FUNCTION void wgmma_fence(Registers&... registers) {
    (detail::pin(registers), ...);
    asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}

WEFT_FUNCTION void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }

// Wait for all groups but the n latest. Name the accumulators (and the registers of A) that are used after it.
template <int n, typename... Registers> WEFT_FUNCTION void wgmma_wait(Registers&... registers) {
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(n) : "memory");
    (detail::pin(registers), ...);
}

// ---------------------------------------------------------------- products

struct tfloat32;  // as in matrix.cuh

namespace detail {

template <typename T> struct wgmma_name;
template <> struct wgmma_name<float16> { static constexpr char text[] = "k16.f32.f16.f16"; };
template <> struct wgmma_name<bfloat16> { static constexpr char text[] = "k16.f32.bf16.bf16"; };
template <> struct wgmma_name<tfloat32> { static constexpr char text[] = "k8.f32.tf32.tf32"; };
template <> struct wgmma_name<int8_t> { static constexpr char text[] = "s8"; };
template <> struct wgmma_name<uint8_t> { static constexpr char text[] = "u8"; };

// Which operands are transposed: the last operands of the instruction; for tfloat32, whose k is always contiguous, none.
template <Major a, Major b> struct wgmma_turns;
template <> struct wgmma_turns<Major::k, Major::k> { static constexpr char text[] = ", 0, 0"; };
template <> struct wgmma_turns<Major::k, Major::rows> { static constexpr char text[] = ", 0, 1"; };
template <> struct wgmma_turns<Major::rows, Major::k> { static constexpr char text[] = ", 1, 0"; };
template <> struct wgmma_turns<Major::rows, Major::rows> { static constexpr char text[] = ", 1, 1"; };
template <Major b> struct wgmma_turn;
template <> struct wgmma_turn<Major::k> { static constexpr char text[] = ", 0"; };
template <> struct wgmma_turn<Major::rows> { static constexpr char text[] = ", 1"; };
struct wgmma_no_turn { static constexpr char text[] = ""; };

template <bool condition, typename A, typename B> struct choose { using type = A; };
template <typename A, typename B> struct choose<false, A, B> { using type = B; };
template <typename T> inline constexpr bool has_turns = true;
template <> inline constexpr bool has_turns<tfloat32> = false;

template <typename T, Major a, Major b> struct wgmma_shared {
    static_assert(has_turns<T> || (a == Major::k && b == Major::k), "tfloat32 is contiguous along k");
    using turns = typename choose<has_turns<T>, wgmma_turns<a, b>, wgmma_no_turn>::type;
};
template <typename T, Major b> struct wgmma_registers {
    static_assert(has_turns<T> || b == Major::k, "tfloat32 is contiguous along k");
    using turns = typename choose<has_turns<T>, wgmma_turn<b>, wgmma_no_turn>::type;
};

}  // namespace detail

// wgmma<T>(d, a, b, accumulate): d += A B, or d = A B, as a product C[64, n] = A[64, k] B[n, k]; T is float16, bfloat16 or
// tfloat32. d has n / 2 registers a thread, n a multiple of 8 from 8 to 256. A is a SharedMatrix, or four registers a thread.
// Who holds what is in weft.layout.atoms: wgmma.
#define WEFT_WGMMA(n, count, e1, e2, e3, e4, e5, e6, e7)                                                                  \
    template <typename T, Major a_major = Major::k, Major b_major = Major::k>                                            \
    WEFT_FUNCTION void wgmma(float (&d)[count], SharedMatrix a, SharedMatrix b, bool accumulate) {                       \
        using turns = typename detail::wgmma_shared<T, a_major, b_major>::turns;                                         \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #e2 ", 0;"                                                       \
                     " wgmma.mma_async.sync.aligned.m64n" #n "%" #e3 " {" WEFT_NAMES_##count "},"                        \
                     " %" #count ", %" #e1 ", p, 1, 1%" #e4 "; }"                                                        \
                     : WEFT_VALUES_##count("+f")                                                                         \
                     : "l"(a.bits), "l"(b.bits), "r"(int(accumulate)), "C"(detail::wgmma_name<T>::text),                 \
                       "C"(turns::text)                                                                                  \
                     : "memory");                                                                                        \
    }                                                                                                                    \
    template <typename T, Major b_major = Major::k>                                                                      \
    WEFT_FUNCTION void wgmma(float (&d)[count], const uint32_t (&a)[4], SharedMatrix b, bool accumulate) {               \
        using turns = typename detail::wgmma_registers<T, b_major>::turns;                                               \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #e5 ", 0;"                                                       \
                     " wgmma.mma_async.sync.aligned.m64n" #n "%" #e6 " {" WEFT_NAMES_##count "},"                        \
                     " {%" #count ", %" #e1 ", %" #e2 ", %" #e3 "}, %" #e4 ", p, 1, 1%" #e7 "; }"                        \
                     : WEFT_VALUES_##count("+f")                                                                         \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits), "r"(int(accumulate)),                    \
                       "C"(detail::wgmma_name<T>::text), "C"(turns::text)                                                \
                     : "memory");                                                                                        \
    }

// The same of int8_t and uint8_t, each operand its own, contiguous along k, of which a step is of 32; sums wrap. n is 8, 24 or a
// multiple of 16.
#define WEFT_WGMMA_INTEGERS(n, count, e1, e2, e3, e4)                                                                    \
    template <typename A, typename B = A>                                                                                \
    WEFT_FUNCTION void wgmma(int32_t (&d)[count], SharedMatrix a, SharedMatrix b, bool accumulate) {                     \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #e2 ", 0;"                                                       \
                     " wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.%" #e3 ".%" #e4 " {" WEFT_NAMES_##count "},"       \
                     " %" #count ", %" #e1 ", p; }"                                                                      \
                     : WEFT_VALUES_##count("+r")                                                                         \
                     : "l"(a.bits), "l"(b.bits), "r"(int(accumulate)), "C"(detail::wgmma_name<A>::text),                 \
                       "C"(detail::wgmma_name<B>::text)                                                                  \
                     : "memory");                                                                                        \
    }

// The accumulators of n columns: their names in the instruction, their values, and the numbers of the operands after them.
#define WEFT_FOUR(as, i) as(d[i]), as(d[i + 1]), as(d[i + 2]), as(d[i + 3])
#define WEFT_NAMES_4 "%0, %1, %2, %3"
#define WEFT_NAMES_8 WEFT_NAMES_4 ", %4, %5, %6, %7"
#define WEFT_NAMES_12 WEFT_NAMES_8 ", %8, %9, %10, %11"
#define WEFT_NAMES_16 WEFT_NAMES_12 ", %12, %13, %14, %15"
#define WEFT_NAMES_20 WEFT_NAMES_16 ", %16, %17, %18, %19"
#define WEFT_NAMES_24 WEFT_NAMES_20 ", %20, %21, %22, %23"
#define WEFT_NAMES_28 WEFT_NAMES_24 ", %24, %25, %26, %27"
#define WEFT_NAMES_32 WEFT_NAMES_28 ", %28, %29, %30, %31"
#define WEFT_NAMES_36 WEFT_NAMES_32 ", %32, %33, %34, %35"
#define WEFT_NAMES_40 WEFT_NAMES_36 ", %36, %37, %38, %39"
#define WEFT_NAMES_44 WEFT_NAMES_40 ", %40, %41, %42, %43"
#define WEFT_NAMES_48 WEFT_NAMES_44 ", %44, %45, %46, %47"
#define WEFT_NAMES_52 WEFT_NAMES_48 ", %48, %49, %50, %51"
#define WEFT_NAMES_56 WEFT_NAMES_52 ", %52, %53, %54, %55"
#define WEFT_NAMES_60 WEFT_NAMES_56 ", %56, %57, %58, %59"
#define WEFT_NAMES_64 WEFT_NAMES_60 ", %60, %61, %62, %63"
#define WEFT_NAMES_68 WEFT_NAMES_64 ", %64, %65, %66, %67"
#define WEFT_NAMES_72 WEFT_NAMES_68 ", %68, %69, %70, %71"
#define WEFT_NAMES_76 WEFT_NAMES_72 ", %72, %73, %74, %75"
#define WEFT_NAMES_80 WEFT_NAMES_76 ", %76, %77, %78, %79"
#define WEFT_NAMES_84 WEFT_NAMES_80 ", %80, %81, %82, %83"
#define WEFT_NAMES_88 WEFT_NAMES_84 ", %84, %85, %86, %87"
#define WEFT_NAMES_92 WEFT_NAMES_88 ", %88, %89, %90, %91"
#define WEFT_NAMES_96 WEFT_NAMES_92 ", %92, %93, %94, %95"
#define WEFT_NAMES_100 WEFT_NAMES_96 ", %96, %97, %98, %99"
#define WEFT_NAMES_104 WEFT_NAMES_100 ", %100, %101, %102, %103"
#define WEFT_NAMES_108 WEFT_NAMES_104 ", %104, %105, %106, %107"
#define WEFT_NAMES_112 WEFT_NAMES_108 ", %108, %109, %110, %111"
#define WEFT_NAMES_116 WEFT_NAMES_112 ", %112, %113, %114, %115"
#define WEFT_NAMES_120 WEFT_NAMES_116 ", %116, %117, %118, %119"
#define WEFT_NAMES_124 WEFT_NAMES_120 ", %120, %121, %122, %123"
#define WEFT_NAMES_128 WEFT_NAMES_124 ", %124, %125, %126, %127"
#define WEFT_VALUES_4(as) WEFT_FOUR(as, 0)
#define WEFT_VALUES_8(as) WEFT_VALUES_4(as), WEFT_FOUR(as, 4)
#define WEFT_VALUES_12(as) WEFT_VALUES_8(as), WEFT_FOUR(as, 8)
#define WEFT_VALUES_16(as) WEFT_VALUES_12(as), WEFT_FOUR(as, 12)
#define WEFT_VALUES_20(as) WEFT_VALUES_16(as), WEFT_FOUR(as, 16)
#define WEFT_VALUES_24(as) WEFT_VALUES_20(as), WEFT_FOUR(as, 20)
#define WEFT_VALUES_28(as) WEFT_VALUES_24(as), WEFT_FOUR(as, 24)
#define WEFT_VALUES_32(as) WEFT_VALUES_28(as), WEFT_FOUR(as, 28)
#define WEFT_VALUES_36(as) WEFT_VALUES_32(as), WEFT_FOUR(as, 32)
#define WEFT_VALUES_40(as) WEFT_VALUES_36(as), WEFT_FOUR(as, 36)
#define WEFT_VALUES_44(as) WEFT_VALUES_40(as), WEFT_FOUR(as, 40)
#define WEFT_VALUES_48(as) WEFT_VALUES_44(as), WEFT_FOUR(as, 44)
#define WEFT_VALUES_52(as) WEFT_VALUES_48(as), WEFT_FOUR(as, 48)
#define WEFT_VALUES_56(as) WEFT_VALUES_52(as), WEFT_FOUR(as, 52)
#define WEFT_VALUES_60(as) WEFT_VALUES_56(as), WEFT_FOUR(as, 56)
#define WEFT_VALUES_64(as) WEFT_VALUES_60(as), WEFT_FOUR(as, 60)
#define WEFT_VALUES_68(as) WEFT_VALUES_64(as), WEFT_FOUR(as, 64)
#define WEFT_VALUES_72(as) WEFT_VALUES_68(as), WEFT_FOUR(as, 68)
#define WEFT_VALUES_76(as) WEFT_VALUES_72(as), WEFT_FOUR(as, 72)
#define WEFT_VALUES_80(as) WEFT_VALUES_76(as), WEFT_FOUR(as, 76)
#define WEFT_VALUES_84(as) WEFT_VALUES_80(as), WEFT_FOUR(as, 80)
#define WEFT_VALUES_88(as) WEFT_VALUES_84(as), WEFT_FOUR(as, 84)
#define WEFT_VALUES_92(as) WEFT_VALUES_88(as), WEFT_FOUR(as, 88)
#define WEFT_VALUES_96(as) WEFT_VALUES_92(as), WEFT_FOUR(as, 92)
#define WEFT_VALUES_100(as) WEFT_VALUES_96(as), WEFT_FOUR(as, 96)
#define WEFT_VALUES_104(as) WEFT_VALUES_100(as), WEFT_FOUR(as, 100)
#define WEFT_VALUES_108(as) WEFT_VALUES_104(as), WEFT_FOUR(as, 104)
#define WEFT_VALUES_112(as) WEFT_VALUES_108(as), WEFT_FOUR(as, 108)
#define WEFT_VALUES_116(as) WEFT_VALUES_112(as), WEFT_FOUR(as, 112)
#define WEFT_VALUES_120(as) WEFT_VALUES_116(as), WEFT_FOUR(as, 116)
#define WEFT_VALUES_124(as) WEFT_VALUES_120(as), WEFT_FOUR(as, 120)
#define WEFT_VALUES_128(as) WEFT_VALUES_124(as), WEFT_FOUR(as, 124)

WEFT_WGMMA(8, 4, 5, 6, 7, 8, 9, 10, 11)
WEFT_WGMMA(16, 8, 9, 10, 11, 12, 13, 14, 15)
WEFT_WGMMA(24, 12, 13, 14, 15, 16, 17, 18, 19)
WEFT_WGMMA(32, 16, 17, 18, 19, 20, 21, 22, 23)
WEFT_WGMMA(40, 20, 21, 22, 23, 24, 25, 26, 27)
WEFT_WGMMA(48, 24, 25, 26, 27, 28, 29, 30, 31)
WEFT_WGMMA(56, 28, 29, 30, 31, 32, 33, 34, 35)
WEFT_WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 39)
WEFT_WGMMA(72, 36, 37, 38, 39, 40, 41, 42, 43)
WEFT_WGMMA(80, 40, 41, 42, 43, 44, 45, 46, 47)
WEFT_WGMMA(88, 44, 45, 46, 47, 48, 49, 50, 51)
WEFT_WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 55)
WEFT_WGMMA(104, 52, 53, 54, 55, 56, 57, 58, 59)
WEFT_WGMMA(112, 56, 57, 58, 59, 60, 61, 62, 63)
WEFT_WGMMA(120, 60, 61, 62, 63, 64, 65, 66, 67)
WEFT_WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 71)
WEFT_WGMMA(136, 68, 69, 70, 71, 72, 73, 74, 75)
WEFT_WGMMA(144, 72, 73, 74, 75, 76, 77, 78, 79)
WEFT_WGMMA(152, 76, 77, 78, 79, 80, 81, 82, 83)
WEFT_WGMMA(160, 80, 81, 82, 83, 84, 85, 86, 87)
WEFT_WGMMA(168, 84, 85, 86, 87, 88, 89, 90, 91)
WEFT_WGMMA(176, 88, 89, 90, 91, 92, 93, 94, 95)
WEFT_WGMMA(184, 92, 93, 94, 95, 96, 97, 98, 99)
WEFT_WGMMA(192, 96, 97, 98, 99, 100, 101, 102, 103)
WEFT_WGMMA(200, 100, 101, 102, 103, 104, 105, 106, 107)
WEFT_WGMMA(208, 104, 105, 106, 107, 108, 109, 110, 111)
WEFT_WGMMA(216, 108, 109, 110, 111, 112, 113, 114, 115)
WEFT_WGMMA(224, 112, 113, 114, 115, 116, 117, 118, 119)
WEFT_WGMMA(232, 116, 117, 118, 119, 120, 121, 122, 123)
WEFT_WGMMA(240, 120, 121, 122, 123, 124, 125, 126, 127)
WEFT_WGMMA(248, 124, 125, 126, 127, 128, 129, 130, 131)
WEFT_WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 135)

WEFT_WGMMA_INTEGERS(8, 4, 5, 6, 7, 8)
WEFT_WGMMA_INTEGERS(16, 8, 9, 10, 11, 12)
WEFT_WGMMA_INTEGERS(24, 12, 13, 14, 15, 16)
WEFT_WGMMA_INTEGERS(32, 16, 17, 18, 19, 20)
WEFT_WGMMA_INTEGERS(48, 24, 25, 26, 27, 28)
WEFT_WGMMA_INTEGERS(64, 32, 33, 34, 35, 36)
WEFT_WGMMA_INTEGERS(80, 40, 41, 42, 43, 44)
WEFT_WGMMA_INTEGERS(96, 48, 49, 50, 51, 52)
WEFT_WGMMA_INTEGERS(112, 56, 57, 58, 59, 60)
WEFT_WGMMA_INTEGERS(128, 64, 65, 66, 67, 68)
WEFT_WGMMA_INTEGERS(144, 72, 73, 74, 75, 76)
WEFT_WGMMA_INTEGERS(160, 80, 81, 82, 83, 84)
WEFT_WGMMA_INTEGERS(176, 88, 89, 90, 91, 92)
WEFT_WGMMA_INTEGERS(192, 96, 97, 98, 99, 100)
WEFT_WGMMA_INTEGERS(208, 104, 105, 106, 107, 108)
WEFT_WGMMA_INTEGERS(224, 112, 113, 114, 115, 116)
WEFT_WGMMA_INTEGERS(240, 120, 121, 122, 123, 124)
WEFT_WGMMA_INTEGERS(256, 128, 129, 130, 131, 132)

#undef WEFT_NAMES_4
#undef WEFT_VALUES_4
#undef WEFT_NAMES_8
#undef WEFT_VALUES_8
#undef WEFT_NAMES_12
#undef WEFT_VALUES_12
#undef WEFT_NAMES_16
#undef WEFT_VALUES_16
#undef WEFT_NAMES_20
#undef WEFT_VALUES_20
#undef WEFT_NAMES_24
#undef WEFT_VALUES_24
#undef WEFT_NAMES_28
#undef WEFT_VALUES_28
#undef WEFT_NAMES_32
#undef WEFT_VALUES_32
#undef WEFT_NAMES_36
#undef WEFT_VALUES_36
#undef WEFT_NAMES_40
#undef WEFT_VALUES_40
#undef WEFT_NAMES_44
#undef WEFT_VALUES_44
#undef WEFT_NAMES_48
#undef WEFT_VALUES_48
#undef WEFT_NAMES_52
#undef WEFT_VALUES_52
#undef WEFT_NAMES_56
#undef WEFT_VALUES_56
#undef WEFT_NAMES_60
#undef WEFT_VALUES_60
#undef WEFT_NAMES_64
#undef WEFT_VALUES_64
#undef WEFT_NAMES_68
#undef WEFT_VALUES_68
#undef WEFT_NAMES_72
#undef WEFT_VALUES_72
#undef WEFT_NAMES_76
#undef WEFT_VALUES_76
#undef WEFT_NAMES_80
#undef WEFT_VALUES_80
#undef WEFT_NAMES_84
#undef WEFT_VALUES_84
#undef WEFT_NAMES_88
#undef WEFT_VALUES_88
#undef WEFT_NAMES_92
#undef WEFT_VALUES_92
#undef WEFT_NAMES_96
#undef WEFT_VALUES_96
#undef WEFT_NAMES_100
#undef WEFT_VALUES_100
#undef WEFT_NAMES_104
#undef WEFT_VALUES_104
#undef WEFT_NAMES_108
#undef WEFT_VALUES_108
#undef WEFT_NAMES_112
#undef WEFT_VALUES_112
#undef WEFT_NAMES_116
#undef WEFT_VALUES_116
#undef WEFT_NAMES_120
#undef WEFT_VALUES_120
#undef WEFT_NAMES_124
#undef WEFT_VALUES_124
#undef WEFT_NAMES_128
#undef WEFT_VALUES_128
#undef WEFT_FOUR
#undef WEFT_WGMMA
#undef WEFT_WGMMA_INTEGERS

}  // namespace weft
