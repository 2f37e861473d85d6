// Loads, stores and read-modify-writes that order other accesses, fences, and a barrier of the whole grid, for the simulator.
//
// The engine is told of each before its bytes are touched; no other thread runs between the two. What may stand in a waiting
// loop gives the others a turn afterwards.
#pragma once
#include "weft/address.cuh"
#include "weft/raw.hpp"

namespace weft {

using sim::Scope;

namespace detail {

template <typename T> inline constexpr bool is_atomic = sizeof(T) == 4 || sizeof(T) == 8;

template <Scope scope, typename T> WEFT_HOST_FUNCTION T load(const T* address, sim::Order order) {
    static_assert(is_atomic<T>, "atomics are of 4 or 8 bytes");
    weft_atomic(address, sizeof(T), sim::Atomic::load, order, scope);
    const T value = sim::raw_load(address);
    weft_yield();
    return value;
}
template <Scope scope, typename T> WEFT_HOST_FUNCTION void store(T* address, T value, sim::Order order) {
    static_assert(is_atomic<T>, "atomics are of 4 or 8 bytes");
    weft_atomic(address, sizeof(T), sim::Atomic::store, order, scope);
    sim::raw_store(address, value);
}
template <Scope scope, typename T> WEFT_HOST_FUNCTION T add(T* address, T value, sim::Order order) {
    weft_atomic(address, sizeof(T), sim::Atomic::add, order, scope);
    const T before = sim::raw_load(address);
    sim::raw_store(address, T(before + value));
    return before;
}
template <Scope scope, typename T> WEFT_HOST_FUNCTION T exchange(T* address, T value, sim::Order order) {
    weft_atomic(address, sizeof(T), sim::Atomic::exchange, order, scope);
    const T before = sim::raw_load(address);
    sim::raw_store(address, value);
    weft_yield();
    return before;
}
template <Scope scope, typename T>
WEFT_HOST_FUNCTION T compare_exchange(T* address, T expected, T value, sim::Order order) {
    weft_atomic(address, sizeof(T), sim::Atomic::compare_exchange, order, scope);
    const T before = sim::raw_load(address);
    if (before == expected) sim::raw_store(address, value);
    else weft_yield();
    return before;
}

}  // namespace detail

// ---------------------------------------------------------------- loads and stores of 4 or 8 bytes

template <Scope scope, typename T> WEFT_HOST_FUNCTION T load_relaxed(const T* address) {
    return detail::load<scope>(address, sim::Order::relaxed);
}
template <Scope scope, typename T> WEFT_HOST_FUNCTION T load_acquire(const T* address) {
    return detail::load<scope>(address, sim::Order::acquire);
}
template <Scope scope, typename T> WEFT_HOST_FUNCTION void store_relaxed(T* address, T value) {
    detail::store<scope>(address, value, sim::Order::relaxed);
}
template <Scope scope, typename T> WEFT_HOST_FUNCTION void store_release(T* address, T value) {
    detail::store<scope>(address, value, sim::Order::release);
}

template <Scope scope> WEFT_HOST_FUNCTION void load_two_relaxed(const uint64_t* address, uint64_t& first, uint64_t& second) {
    first = load_relaxed<scope>(address);
    second = load_relaxed<scope>(address + 1);
}
template <Scope scope> WEFT_HOST_FUNCTION void store_two_relaxed(uint64_t* address, uint64_t first, uint64_t second) {
    store_relaxed<scope>(address, first);
    store_relaxed<scope>(address + 1, second);
}

// PTX gives volatile accesses the meaning of relaxed ones of the whole system.
template <typename T> WEFT_HOST_FUNCTION T load_volatile(const T* address) {
    weft_atomic(address, sizeof(T), sim::Atomic::load, sim::Order::relaxed, Scope::system);
    const T value = sim::raw_load(address);
    weft_yield();
    return value;
}
template <typename T> WEFT_HOST_FUNCTION void store_volatile(T* address, T value) {
    weft_atomic(address, sizeof(T), sim::Atomic::store, sim::Order::relaxed, Scope::system);
    sim::raw_store(address, value);
}

// ---------------------------------------------------------------- read-modify-writes

// atomic_add_ORDER<scope>(address, value): the value before; uint32_t, uint64_t, float.
// atomic_exchange_ORDER<scope>(address, value): the value before; uint32_t, uint64_t.
// atomic_compare_exchange_ORDER<scope>(address, expected, value): the value before; written only if that is `expected`; relaxed
// also of uint8_t and uint16_t.
#define WEFT_ORDERED_ADD(order, type)                                                                        \
    template <Scope scope> WEFT_HOST_FUNCTION type atomic_add_##order(type* address, type value) {           \
        return detail::add<scope>(address, value, sim::Order::order);                                        \
    }
#define WEFT_ORDERED_EXCHANGES(order, type)                                                                  \
    template <Scope scope> WEFT_HOST_FUNCTION type atomic_exchange_##order(type* address, type value) {      \
        return detail::exchange<scope>(address, value, sim::Order::order);                                   \
    }                                                                                                        \
    template <Scope scope>                                                                                   \
    WEFT_HOST_FUNCTION type atomic_compare_exchange_##order(type* address, type expected, type value) {      \
        return detail::compare_exchange<scope>(address, expected, value, sim::Order::order);                 \
    }
#define WEFT_ORDERED(order)                                                                                  \
    WEFT_ORDERED_ADD(order, uint32_t)                                                                        \
    WEFT_ORDERED_ADD(order, uint64_t)                                                                        \
    WEFT_ORDERED_ADD(order, float)                                                                           \
    WEFT_ORDERED_EXCHANGES(order, uint32_t)                                                                  \
    WEFT_ORDERED_EXCHANGES(order, uint64_t)

WEFT_ORDERED(relaxed)
WEFT_ORDERED(acquire)
WEFT_ORDERED(release)
WEFT_ORDERED(acquire_release)

#undef WEFT_ORDERED
#undef WEFT_ORDERED_EXCHANGES
#undef WEFT_ORDERED_ADD

template <Scope scope>
WEFT_HOST_FUNCTION uint8_t atomic_compare_exchange_relaxed(uint8_t* address, uint8_t expected, uint8_t value) {
    return detail::compare_exchange<scope>(address, expected, value, sim::Order::relaxed);
}
template <Scope scope>
WEFT_HOST_FUNCTION uint16_t atomic_compare_exchange_relaxed(uint16_t* address, uint16_t expected, uint16_t value) {
    return detail::compare_exchange<scope>(address, expected, value, sim::Order::relaxed);
}

// ---------------------------------------------------------------- fences

template <Scope scope> WEFT_HOST_FUNCTION void fence() { weft_fence(scope); }

// ---------------------------------------------------------------- the whole grid

// As on the device.
WEFT_HOST_FUNCTION void grid_sync(uint32_t* counter) {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) {
        const uint32_t blocks = gridDim.x * gridDim.y * gridDim.z;
        const bool first = blockIdx.x + blockIdx.y + blockIdx.z == 0;
        const uint32_t before =
            atomic_add_acquire_release<Scope::gpu>(counter, first ? 0x80000000u - (blocks - 1) : uint32_t(1));
        while (((load_acquire<Scope::gpu>(counter) ^ before) & 0x80000000u) == 0) {
        }
    }
    __syncthreads();
}

// Once a launch, in two halves: all threads of a block arrive.
WEFT_HOST_FUNCTION uint32_t arrive_at_grid() {
    __syncthreads();
    if (threadIdx.x + threadIdx.y + threadIdx.z == 0) weft_arrive_at_grid();
    return 0;
}
WEFT_HOST_FUNCTION void wait_for_grid(uint32_t) {
    while (!weft_grid_arrived()) weft_yield();
}

}  // namespace weft
