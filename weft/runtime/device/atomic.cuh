// Loads, stores and read-modify-writes that order other accesses, fences, and a barrier of the whole grid.
//
// An acquire that reads what a release wrote sees all that was done before the release, if both name a scope that holds
// both threads. Unordered atomics are CUDA's own: atomicAdd, atomicMax, ...
#pragma once
#include "weft/address.cuh"

namespace weft {

enum class Scope { block, cluster, gpu, system };

namespace detail {

// PTX names of scopes. Before sm_90 each block is a cluster of its own.
template <Scope scope> struct scope_name;
template <> struct scope_name<Scope::block> { static constexpr char text[] = "cta"; };
#if __CUDA_ARCH__ >= 900
template <> struct scope_name<Scope::cluster> { static constexpr char text[] = "cluster"; };
#else
template <> struct scope_name<Scope::cluster> { static constexpr char text[] = "cta"; };
#endif
template <> struct scope_name<Scope::gpu> { static constexpr char text[] = "gpu"; };
template <> struct scope_name<Scope::system> { static constexpr char text[] = "sys"; };

// The word a value travels in.
template <int size> struct carrier;
template <> struct carrier<4> { using type = uint32_t; };
template <> struct carrier<8> { using type = uint64_t; };
template <typename T> using carrier_of = typename carrier<sizeof(T)>::type;
template <typename To, typename From> WEFT_FUNCTION To reinterpret(From value) {
    static_assert(sizeof(To) == sizeof(From), "atomics are of 4 or 8 bytes");
    return *reinterpret_cast<To*>(&value);
}

#define WEFT_LOAD(name, operation)                                                                       \
    template <Scope scope> WEFT_FUNCTION uint32_t name(const uint32_t* address) {                        \
        uint32_t value;                                                                                  \
        asm volatile(operation ".%2.b32 %0, [%1];"                                                       \
                     : "=r"(value) : "l"(address), "C"(scope_name<scope>::text) : "memory");             \
        return value;                                                                                    \
    }                                                                                                    \
    template <Scope scope> WEFT_FUNCTION uint64_t name(const uint64_t* address) {                        \
        uint64_t value;                                                                                  \
        asm volatile(operation ".%2.b64 %0, [%1];"                                                       \
                     : "=l"(value) : "l"(address), "C"(scope_name<scope>::text) : "memory");             \
        return value;                                                                                    \
    }
#define WEFT_STORE(name, operation)                                                                      \
    template <Scope scope> WEFT_FUNCTION void name(uint32_t* address, uint32_t value) {                  \
        asm volatile(operation ".%2.b32 [%0], %1;"                                                       \
                     : : "l"(address), "r"(value), "C"(scope_name<scope>::text) : "memory");             \
    }                                                                                                    \
    template <Scope scope> WEFT_FUNCTION void name(uint64_t* address, uint64_t value) {                  \
        asm volatile(operation ".%2.b64 [%0], %1;"                                                       \
                     : : "l"(address), "l"(value), "C"(scope_name<scope>::text) : "memory");             \
    }

WEFT_LOAD(load_relaxed, "ld.relaxed")
WEFT_LOAD(load_acquire, "ld.acquire")
WEFT_STORE(store_relaxed, "st.relaxed")
WEFT_STORE(store_release, "st.release")

#undef WEFT_LOAD
#undef WEFT_STORE

}  // namespace detail

// ---------------------------------------------------------------- loads and stores of 4 or 8 bytes

template <Scope scope, typename T> WEFT_FUNCTION T load_relaxed(const T* address) {
    return detail::reinterpret<T>(
        detail::load_relaxed<scope>(reinterpret_cast<const detail::carrier_of<T>*>(address)));
}
template <Scope scope, typename T> WEFT_FUNCTION T load_acquire(const T* address) {
    return detail::reinterpret<T>(
        detail::load_acquire<scope>(reinterpret_cast<const detail::carrier_of<T>*>(address)));
}
template <Scope scope, typename T> WEFT_FUNCTION void store_relaxed(T* address, T value) {
    using Word = detail::carrier_of<T>;
    detail::store_relaxed<scope>(reinterpret_cast<Word*>(address), detail::reinterpret<Word>(value));
}
template <Scope scope, typename T> WEFT_FUNCTION void store_release(T* address, T value) {
    using Word = detail::carrier_of<T>;
    detail::store_release<scope>(reinterpret_cast<Word*>(address), detail::reinterpret<Word>(value));
}

// Two words side by side, at a multiple of 16 bytes, by one instruction: each of them as by itself.
template <Scope scope> WEFT_FUNCTION void load_two_relaxed(const uint64_t* address, uint64_t& first, uint64_t& second) {
    asm volatile("ld.relaxed.%3.v2.b64 {%0, %1}, [%2];"
                 : "=l"(first), "=l"(second) : "l"(address), "C"(detail::scope_name<scope>::text) : "memory");
}
template <Scope scope> WEFT_FUNCTION void store_two_relaxed(uint64_t* address, uint64_t first, uint64_t second) {
    asm volatile("st.relaxed.%3.v2.b64 [%0], {%1, %2};"
                 : : "l"(address), "l"(first), "l"(second), "C"(detail::scope_name<scope>::text) : "memory");
}

// Read from memory at each call, in no order with other addresses.
template <typename T> WEFT_FUNCTION T load_volatile(const T* address) {
    return *static_cast<const volatile T*>(address);
}
template <typename T> WEFT_FUNCTION void store_volatile(T* address, T value) {
    *static_cast<volatile T*>(address) = value;
}

// ---------------------------------------------------------------- read-modify-writes

// atomic_add_ORDER<scope>(address, value): the value before; uint32_t, uint64_t, float.
// atomic_exchange_ORDER<scope>(address, value): the value before; uint32_t, uint64_t.
// atomic_compare_exchange_ORDER<scope>(address, expected, value): the value before; written only if that is `expected`; relaxed
// also of uint8_t and uint16_t.
#define WEFT_ATOMIC(name, operation, type, constraint)                                                   \
    template <Scope scope> WEFT_FUNCTION type name(type* address, type value) {                          \
        type before;                                                                                     \
        asm volatile(operation " %0, [%1], %2;"                                                          \
                     : "=" constraint(before)                                                            \
                     : "l"(address), constraint(value), "C"(detail::scope_name<scope>::text) : "memory");\
        return before;                                                                                   \
    }
#define WEFT_COMPARE(name, operation, type, constraint)                                                  \
    template <Scope scope> WEFT_FUNCTION type name(type* address, type expected, type value) {           \
        type before;                                                                                     \
        asm volatile(operation " %0, [%1], %2, %3;"                                                      \
                     : "=" constraint(before)                                                            \
                     : "l"(address), constraint(expected), constraint(value),                            \
                       "C"(detail::scope_name<scope>::text)                                              \
                     : "memory");                                                                        \
        return before;                                                                                   \
    }
#define WEFT_ATOMICS(suffix, order)                                                                      \
    WEFT_ATOMIC(atomic_add_##suffix, "atom." order ".%3.add.u32", uint32_t, "r")                         \
    WEFT_ATOMIC(atomic_add_##suffix, "atom." order ".%3.add.u64", uint64_t, "l")                         \
    WEFT_ATOMIC(atomic_add_##suffix, "atom." order ".%3.add.f32", float, "f")                            \
    WEFT_ATOMIC(atomic_exchange_##suffix, "atom." order ".%3.exch.b32", uint32_t, "r")                   \
    WEFT_ATOMIC(atomic_exchange_##suffix, "atom." order ".%3.exch.b64", uint64_t, "l")                   \
    WEFT_COMPARE(atomic_compare_exchange_##suffix, "atom." order ".%4.cas.b32", uint32_t, "r")           \
    WEFT_COMPARE(atomic_compare_exchange_##suffix, "atom." order ".%4.cas.b64", uint64_t, "l")

WEFT_ATOMICS(relaxed, "relaxed")
WEFT_ATOMICS(acquire, "acquire")
WEFT_ATOMICS(release, "release")
WEFT_ATOMICS(acquire_release, "acq_rel")

#undef WEFT_ATOMICS
#undef WEFT_COMPARE
#undef WEFT_ATOMIC

namespace detail {
// Of 1 or 2 bytes: of the word that they lie in, whose others stay as they are.
template <Scope scope, typename T> WEFT_FUNCTION T compare_exchange_within(T* address, T expected, T value) {
    const uint64_t place = reinterpret_cast<uint64_t>(address);
    uint32_t* const word = reinterpret_cast<uint32_t*>(place & ~uint64_t(3));
    const uint32_t shift = uint32_t(place & 3) * 8, others = ~(uint32_t(T(~T(0))) << shift);
    uint32_t seen = load_relaxed<scope>(word);
    while (T(seen >> shift) == expected) {
        const uint32_t before =
            atomic_compare_exchange_relaxed<scope>(word, seen, (seen & others) | uint32_t(value) << shift);
        if (before == seen) break;
        seen = before;
    }
    return T(seen >> shift);
}
}  // namespace detail

template <Scope scope>
WEFT_FUNCTION uint8_t atomic_compare_exchange_relaxed(uint8_t* address, uint8_t expected, uint8_t value) {
    return detail::compare_exchange_within<scope>(address, expected, value);
}
template <Scope scope>
WEFT_FUNCTION uint16_t atomic_compare_exchange_relaxed(uint16_t* address, uint16_t expected, uint16_t value) {
    return detail::compare_exchange_within<scope>(address, expected, value);
}

// ---------------------------------------------------------------- fences

// Relaxed accesses on either side of it order what lies around them, as an acquire and a release would.
template <Scope scope> WEFT_FUNCTION void fence() {
    asm volatile("fence.acq_rel.%0;" : : "C"(detail::scope_name<scope>::text) : "memory");
}

// ---------------------------------------------------------------- the whole grid

// Barriers of cooperative launches, where all blocks run at once. A round adds 2^31 in all to `counter`: its end is the change of
// the highest bit, and the other bits are 0 again.
namespace detail {
WEFT_FUNCTION bool first_of_block() { return threadIdx.x + threadIdx.y + threadIdx.z == 0; }
WEFT_FUNCTION uint32_t share_of_round() {
    const uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
    return blockIdx.x + blockIdx.y + blockIdx.z == 0 ? 0x80000000u - (blocks - 1) : 1;
}
// The one that the driver has for each cooperative launch: the second word of what envreg1 (the high half) and envreg2 point to.
WEFT_FUNCTION uint32_t* counter_of_driver() {
    uint32_t low, high;
    asm("mov.u32 %0, %%envreg1;" : "=r"(high));
    asm("mov.u32 %0, %%envreg2;" : "=r"(low));
    return reinterpret_cast<uint32_t*>(uint64_t(high) << 32 | low) + 1;
}
}  // namespace detail

// Every thread of every block waits for all the others. `counter` lies in global memory and is 0 before its first use ever; it
// needs no reset, between launches neither.
WEFT_FUNCTION void grid_sync(uint32_t* counter) {
    __syncthreads();
    if (detail::first_of_block()) {
        const uint32_t before = atomic_add_acquire_release<Scope::gpu>(counter, detail::share_of_round());
        while (((load_acquire<Scope::gpu>(counter) ^ before) & 0x80000000u) == 0) {
        }
    }
    __syncthreads();
}

// The same in two halves, once a launch. All threads of a block arrive; what they have done is seen by who has waited for the
// round that this gives.
WEFT_FUNCTION uint32_t arrive_at_grid() {
    uint32_t* const counter = detail::counter_of_driver();
    const bool first = detail::first_of_block();
    const uint32_t round = __syncthreads_or(first && load_relaxed<Scope::gpu>(counter) >> 31);  // it ends when all have arrived
    if (first) atomic_add_release<Scope::gpu>(counter, detail::share_of_round());
    return round;
}
WEFT_FUNCTION void wait_for_grid(uint32_t round) {
    while (load_acquire<Scope::gpu>(detail::counter_of_driver()) >> 31 == round) {
    }
}

}  // namespace weft
