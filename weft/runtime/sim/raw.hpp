// Memory that a twin moves for an operation which it has already told the engine: without the instrumentation, which would
// count it as an ordinary access as well.
#ifndef WEFT_RAW
#define WEFT_RAW

#define WEFT_UNWATCHED __attribute__((noinline, no_sanitize("thread")))

namespace weft::sim {

template <class T> WEFT_UNWATCHED T raw_load(const T* address) {
    T value;
    __builtin_memcpy(&value, address, sizeof value);
    return value;
}
template <class T> WEFT_UNWATCHED void raw_store(T* address, T value) { __builtin_memcpy(address, &value, sizeof value); }

}  // namespace weft::sim

#endif
