// Matrix products of a warpgroup: wgmma, for the simulator.
#pragma once
#include "weft/address.cuh"

namespace weft {

// ---------------------------------------------------------------- matrices in shared memory

enum class Major { k, rows };

// The descriptor's own 64 bits, so that whatever a kernel does to them means the same here.
struct SharedMatrix {
    uint64_t bits;

    WEFT_HOST_FUNCTION SharedMatrix advanced(uint32_t bytes) const { return {bits + (bytes >> 4)}; }
};

template <int swizzle> WEFT_HOST_FUNCTION SharedMatrix shared_matrix(const void* tile, uint32_t leading, uint32_t stride) {
    static_assert(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128, "a swizzle of 0, 32, 64 or 128 bytes");
    constexpr uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    const uint64_t start = (detail::shared_address(tile) & 0x3ffffu) >> 4;
    return {start | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 | mode << 62};
}

// ---------------------------------------------------------------- order

template <typename... Registers> WEFT_HOST_FUNCTION void wgmma_fence(Registers&...) { weft_wgmma_fence(); }
WEFT_HOST_FUNCTION void wgmma_commit() { weft_wgmma_commit(); }
template <int n, typename... Registers> WEFT_HOST_FUNCTION void wgmma_wait(Registers&...) { weft_wgmma_wait(n); }

// ---------------------------------------------------------------- products

struct tfloat32;

namespace detail {

template <typename T> struct wgmma_element;
template <> struct wgmma_element<float16> { static constexpr weft_element value = weft_float16; };
template <> struct wgmma_element<bfloat16> { static constexpr weft_element value = weft_bfloat16; };
template <> struct wgmma_element<tfloat32> { static constexpr weft_element value = weft_tfloat32; };
template <> struct wgmma_element<int8_t> { static constexpr weft_element value = weft_int8; };
template <> struct wgmma_element<uint8_t> { static constexpr weft_element value = weft_uint8; };

template <typename T> inline constexpr bool has_turns = true;
template <> inline constexpr bool has_turns<tfloat32> = false;

template <int count> inline constexpr bool is_wgmma_width = count % 4 == 0 && 4 <= count && count <= 128;

WEFT_HOST_FUNCTION weft_matrix described(SharedMatrix matrix, Major major) {
    constexpr uint32_t swizzles[] = {0, 128, 64, 32};
    const auto bytes = [&](int from) { return uint32_t(matrix.bits >> from & 0x3fffu) << 4; };
    return {bytes(0), bytes(16), bytes(32), swizzles[matrix.bits >> 62], major == Major::rows};
}

}  // namespace detail

// wgmma<T>(d, a, b, accumulate): d += A B, or d = A B, as on the device.
template <typename T, Major a_major = Major::k, Major b_major = Major::k, int count>
WEFT_HOST_FUNCTION void wgmma(float (&d)[count], SharedMatrix a, SharedMatrix b, bool accumulate) {
    static_assert(detail::is_wgmma_width<count>, "n / 2 registers, n a multiple of 8 from 8 to 256");
    static_assert(detail::has_turns<T> || (a_major == Major::k && b_major == Major::k), "tfloat32 is contiguous along k");
    const weft_matrix left = detail::described(a, a_major), right = detail::described(b, b_major);
    weft_wgmma(d, 2 * count, nullptr, &left, &right, accumulate, detail::wgmma_element<T>::value, detail::wgmma_element<T>::value);
}
template <typename T, Major b_major = Major::k, int count>
WEFT_HOST_FUNCTION void wgmma(float (&d)[count], const uint32_t (&a)[4], SharedMatrix b, bool accumulate) {
    static_assert(detail::is_wgmma_width<count>, "n / 2 registers, n a multiple of 8 from 8 to 256");
    static_assert(detail::has_turns<T> || b_major == Major::k, "tfloat32 is contiguous along k");
    weft_check_registers(a, sizeof a, "operand A of wgmma");
    const weft_matrix right = detail::described(b, b_major);
    weft_wgmma(d, 2 * count, a, nullptr, &right, accumulate, detail::wgmma_element<T>::value, detail::wgmma_element<T>::value);
}

// The same of int8_t and uint8_t, each operand its own, contiguous along k.
template <typename A, typename B = A, int count>
WEFT_HOST_FUNCTION void wgmma(int32_t (&d)[count], SharedMatrix a, SharedMatrix b, bool accumulate) {
    static_assert(detail::is_wgmma_width<count> && (count == 4 || count == 12 || count % 8 == 0), "n is 8, 24 or a multiple of 16");
    const weft_matrix left = detail::described(a, Major::k), right = detail::described(b, Major::k);
    weft_wgmma(d, 2 * count, nullptr, &left, &right, accumulate, detail::wgmma_element<A>::value, detail::wgmma_element<B>::value);
}

}  // namespace weft
