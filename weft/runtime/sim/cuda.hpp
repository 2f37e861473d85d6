// CUDA's own words for the host compiler: put before the text of a kernel that is simulated.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "weft/engine.hpp"
#include "weft/raw.hpp"

#define __global__ __attribute__((flatten))  // all of a kernel in one function, so that each access has its line
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define alignas(bytes) __attribute__((aligned(bytes)))  // which, unlike alignas, may stand among the words of a declaration
#define __align__(bytes) __attribute__((aligned(bytes)))
// A thread of the operating system runs a block at a time, so that what is a thread's own is a block's. Apart from each
// other, so that an index beyond one variable rarely lands in the next.
#define __shared__ thread_local __attribute__((aligned(256)))

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
};

#define threadIdx (weft_self().thread)
#define blockIdx (weft_self().block)
#define blockDim (weft_self().block_size)
#define gridDim (weft_self().grid_size)
constexpr int warpSize = 32;

#define WEFT_HOST_FUNCTION inline __attribute__((always_inline))

namespace weft::sim {

template <class T> WEFT_HOST_FUNCTION uint64_t to_bits(T value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T> WEFT_HOST_FUNCTION T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The lane a shuffle reads, or -1 for the lane's own value: as the segments of `width` lanes allow.
WEFT_HOST_FUNCTION int up(int distance, int width) {
    const int lane = int(weft_self().linear % 32);
    return lane % width >= distance ? lane - distance : -1;
}
WEFT_HOST_FUNCTION int down(int distance, int width) {
    const int lane = int(weft_self().linear % 32);
    return lane % width + distance < width ? lane + distance : -1;
}
WEFT_HOST_FUNCTION int across(int mask, int width) {
    const int lane = int(weft_self().linear % 32);
    const int source = lane ^ mask;
    return source / width <= lane / width ? source : -1;
}
WEFT_HOST_FUNCTION int at(int source, int width) {
    const int lane = int(weft_self().linear % 32);
    return lane / width * width + (source & (width - 1));
}

template <class T, class Change>
WEFT_HOST_FUNCTION T change(T* address, Atomic what, Change value, Order order = Order::relaxed, Scope scope = Scope::gpu) {
    weft_atomic(address, sizeof(T), what, order, scope);
    const T before = raw_load(address);
    raw_store(address, T(value(before)));
    return before;
}

}  // namespace weft::sim

// ---------------------------------------------------------------- barriers and fences

#define __syncthreads() weft_barrier(0, 0, true)
WEFT_HOST_FUNCTION int __syncthreads_count(int predicate) { return int(weft_barrier_count(uint32_t(predicate))); }
WEFT_HOST_FUNCTION int __syncthreads_or(int predicate) { return weft_barrier_count(predicate != 0) != 0; }
WEFT_HOST_FUNCTION int __syncthreads_and(int predicate) { return weft_barrier_count(predicate == 0) == 0; }
WEFT_HOST_FUNCTION void __syncwarp(unsigned mask = 0xffffffffu) { weft_sync_warp(mask); }
WEFT_HOST_FUNCTION void __threadfence_block() { weft_fence(weft::sim::Scope::block); }
WEFT_HOST_FUNCTION void __threadfence() { weft_fence(weft::sim::Scope::gpu); }
WEFT_HOST_FUNCTION void __threadfence_system() { weft_fence(weft::sim::Scope::system); }
WEFT_HOST_FUNCTION void __trap() { weft_trap(); }
WEFT_HOST_FUNCTION void __nanosleep(unsigned) { weft_yield(); }
WEFT_HOST_FUNCTION long long clock64() { return (long long)weft_clock(); }

// ---------------------------------------------------------------- warps

template <class T> WEFT_HOST_FUNCTION T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
    return weft::sim::from_bits<T>(weft_shuffle(mask, weft::sim::to_bits(value), weft::sim::at(lane, width)));
}
template <class T> WEFT_HOST_FUNCTION T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32) {
    return weft::sim::from_bits<T>(weft_shuffle(mask, weft::sim::to_bits(value), weft::sim::up(int(distance), width)));
}
template <class T> WEFT_HOST_FUNCTION T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32) {
    return weft::sim::from_bits<T>(weft_shuffle(mask, weft::sim::to_bits(value), weft::sim::down(int(distance), width)));
}
template <class T> WEFT_HOST_FUNCTION T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32) {
    return weft::sim::from_bits<T>(weft_shuffle(mask, weft::sim::to_bits(value), weft::sim::across(lanes, width)));
}
WEFT_HOST_FUNCTION unsigned __ballot_sync(unsigned mask, int predicate) {
    return weft_vote(mask, weft::sim::Vote::ballot, predicate != 0);
}
WEFT_HOST_FUNCTION int __any_sync(unsigned mask, int predicate) {
    return int(weft_vote(mask, weft::sim::Vote::any, predicate != 0));
}
WEFT_HOST_FUNCTION int __all_sync(unsigned mask, int predicate) {
    return int(weft_vote(mask, weft::sim::Vote::all, predicate != 0));
}
template <class T> WEFT_HOST_FUNCTION unsigned __match_any_sync(unsigned mask, T value) {
    return weft_vote(mask, weft::sim::Vote::match, weft::sim::to_bits(value));
}
WEFT_HOST_FUNCTION unsigned __activemask() { return weft_active_mask(); }

// ---------------------------------------------------------------- memory

template <class T> WEFT_HOST_FUNCTION T __ldg(const T* address) { return *address; }

#define WEFT_ATOMIC(name, what, expression)                                                                  \
    template <class T> WEFT_HOST_FUNCTION T name(T* address, std::common_type_t<T> value) {                  \
        return weft::sim::change(address, weft::sim::Atomic::what, [&](T old) { return T(expression); });    \
    }
WEFT_ATOMIC(atomicAdd, add, old + value)
WEFT_ATOMIC(atomicSub, add, old - value)
WEFT_ATOMIC(atomicMax, max, old > value ? old : value)
WEFT_ATOMIC(atomicMin, min, old < value ? old : value)
WEFT_ATOMIC(atomicAnd, bit_and, old & value)
WEFT_ATOMIC(atomicOr, bit_or, old | value)
WEFT_ATOMIC(atomicXor, bit_xor, old ^ value)
#undef WEFT_ATOMIC
// Loops try these again and again: others must come between.
template <class T> WEFT_HOST_FUNCTION T atomicExch(T* address, std::common_type_t<T> value) {
    const T before = weft::sim::change(address, weft::sim::Atomic::exchange, [&](T) { return value; });
    weft_yield();
    return before;
}
template <class T> WEFT_HOST_FUNCTION T atomicCAS(T* address, std::common_type_t<T> compare, std::common_type_t<T> value) {
    const T before = weft::sim::change(address, weft::sim::Atomic::compare_exchange, [&](T old) { return old == compare ? value : old; });
    weft_yield();
    return before;
}

// ---------------------------------------------------------------- arithmetic

WEFT_HOST_FUNCTION unsigned __float_as_uint(float value) { return weft::sim::from_bits<unsigned>(weft::sim::to_bits(value)); }
WEFT_HOST_FUNCTION int __float_as_int(float value) { return weft::sim::from_bits<int>(weft::sim::to_bits(value)); }
WEFT_HOST_FUNCTION float __uint_as_float(unsigned bits) { return weft::sim::from_bits<float>(bits); }
WEFT_HOST_FUNCTION float __int_as_float(int bits) { return weft::sim::from_bits<float>(weft::sim::to_bits(bits)); }
WEFT_HOST_FUNCTION long long __double_as_longlong(double value) { return (long long)weft::sim::to_bits(value); }
WEFT_HOST_FUNCTION double __longlong_as_double(long long bits) { return weft::sim::from_bits<double>(uint64_t(bits)); }
WEFT_HOST_FUNCTION int __popc(unsigned x) { return __builtin_popcount(x); }
WEFT_HOST_FUNCTION int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
WEFT_HOST_FUNCTION int __ffs(int x) { return __builtin_ffs(x); }
WEFT_HOST_FUNCTION int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
WEFT_HOST_FUNCTION int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
WEFT_HOST_FUNCTION unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t(a) * b) >> 32); }
WEFT_HOST_FUNCTION unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
WEFT_HOST_FUNCTION unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int k = 0; k < 32; ++k) reversed |= (x >> k & 1u) << (31 - k);
    return reversed;
}
WEFT_HOST_FUNCTION unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = a | uint64_t(b) << 32;
    unsigned made = 0;
    for (int k = 0; k < 4; ++k) made |= unsigned(bytes >> (selector >> 4 * k & 7u) * 8 & 0xff) << 8 * k;
    return made;
}
WEFT_HOST_FUNCTION float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
WEFT_HOST_FUNCTION double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
WEFT_HOST_FUNCTION float __fadd_rn(float a, float b) { return a + b; }
WEFT_HOST_FUNCTION float __fsub_rn(float a, float b) { return a - b; }
WEFT_HOST_FUNCTION float __fmul_rn(float a, float b) { return a * b; }
WEFT_HOST_FUNCTION float __fdiv_rn(float a, float b) { return a / b; }
WEFT_HOST_FUNCTION float __fsqrt_rn(float x) { return std::sqrt(x); }
WEFT_HOST_FUNCTION float __frcp_rn(float x) { return 1.0f / x; }
// The approximations are right here; the device's lie within their documented error.
WEFT_HOST_FUNCTION float __fdividef(float a, float b) { return a / b; }
WEFT_HOST_FUNCTION float __expf(float x) { return float(std::exp(double(x))); }
WEFT_HOST_FUNCTION float __exp10f(float x) { return float(std::pow(10.0, double(x))); }
WEFT_HOST_FUNCTION float __logf(float x) { return float(std::log(double(x))); }
WEFT_HOST_FUNCTION float __log2f(float x) { return float(std::log2(double(x))); }
WEFT_HOST_FUNCTION float __log10f(float x) { return float(std::log10(double(x))); }
WEFT_HOST_FUNCTION float __sinf(float x) { return float(std::sin(double(x))); }
WEFT_HOST_FUNCTION float __cosf(float x) { return float(std::cos(double(x))); }
WEFT_HOST_FUNCTION float __powf(float a, float b) { return float(std::pow(double(a), double(b))); }
WEFT_HOST_FUNCTION float rsqrtf(float x) { return float(1.0 / std::sqrt(double(x))); }
WEFT_HOST_FUNCTION double rsqrt(double x) { return 1.0 / std::sqrt(x); }
using std::max;
using std::min;

// ---------------------------------------------------------------- how the simulator enters a kernel

namespace weft::sim {

template <class T> WEFT_HOST_FUNCTION T argument(uint64_t slot) {
    if constexpr (std::is_pointer_v<T>) return reinterpret_cast<T>(slot);
    else if constexpr (std::is_same_v<T, double>) return from_bits<double>(slot);
    else if constexpr (std::is_same_v<T, float>) return float(from_bits<double>(slot));
    else if constexpr (!std::is_class_v<T>) return T(slot);
    else {
        T value;
        __builtin_memcpy(&value, reinterpret_cast<const void*>(slot), sizeof value);  // the slot need not be aligned
        return value;
    }
}

template <class... Parameters, size_t... k>
__attribute__((no_sanitize("thread"))) WEFT_HOST_FUNCTION void enter(void (*kernel)(Parameters...), const uint64_t* slots,
                                                                       std::integer_sequence<size_t, k...>) {
    kernel(argument<std::remove_const_t<Parameters>>(slots[k])...);
}

}  // namespace weft::sim

// At the end of a text: its entry as the engine calls it.
#define WEFT_ENTRY(name, parameters)                                                                    \
    extern "C" __attribute__((no_sanitize("thread"))) void weft_enter_##name(const uint64_t* slots) {   \
        weft::sim::enter(&name, slots, std::make_index_sequence<parameters>());                         \
    }
