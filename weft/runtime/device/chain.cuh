// Blocks that go through the tiles of a row side by side: each tells the others what its tile does to a state. All of them run
// at once (a cooperative launch), and each reads what all of them have told, so no word goes from block to block to block.
#pragma once
#include "weft/atomic.cuh"
#include "weft/team.cuh"

namespace weft {

// Memory that blocks tell each other values through: 8 bytes for each 4 of a value, which the turn goes with. So a word says
// itself whether it has come, and nothing orders it. It is 0 at first; turns count from 1, and use four places by turns: who
// tells of one has heard of the one two turns before, so all have heard of the one four turns before.
template <class Value> inline constexpr int told_words = (sizeof(Value) + 3) / 4;

template <class Value> WEFT_FUNCTION void tell(uint64_t* place, const Value& value, uint32_t turn) {
    uint32_t words[told_words<Value>] = {};
    memcpy(words, &value, sizeof value);
#pragma unroll
    for (int k = 0; k < told_words<Value>; ++k) store_relaxed<Scope::gpu>(place + k, uint64_t(turn) << 32 | words[k]);
}

// Waits until it is told.
template <class Value> WEFT_FUNCTION Value told(const uint64_t* place, uint32_t turn) {
    constexpr int count = told_words<Value>;
    uint32_t words[count];
    bool all;
    do {
        uint64_t word[count];
#pragma unroll
        for (int k = 0; k < count; ++k) word[k] = load_relaxed<Scope::gpu>(place + k);
        all = true;
#pragma unroll
        for (int k = 0; k < count; ++k) {
            words[k] = uint32_t(word[k]);
            all = all && uint32_t(word[k] >> 32) == turn;
        }
    } while (!all);
    Value value;
    memcpy(&value, words, sizeof value);
    return value;
}

namespace detail {
// Two values that are combined side by side.
template <class Algebra> struct Both {
    struct Value {
        static constexpr bool compound = true;
        typename Algebra::Value first, second;
        template <class F> WEFT_FUNCTION Value each(F f) const { return {f(first), f(second)}; }
    };
    static WEFT_FUNCTION Value identity() { return {Algebra::identity(), Algebra::identity()}; }
    static WEFT_FUNCTION Value combine(const Value& a, const Value& b) {
        return {Algebra::combine(a.first, b.first), Algebra::combine(a.second, b.second)};
    }
};
struct Finite {
    bool& all;
    template <class T> WEFT_FUNCTION T operator()(const T& value) const {
        if constexpr (Compound<T>::value) return value.each(*this);
        else all = all && is_finite(value);
        return value;
    }
};
}  // namespace detail

template <class Value> WEFT_FUNCTION bool finite_parts(const Value& value) {
    bool all = true;
    detail::Finite{all}(value);
    return all;
}

// How the blocks of a row tell each other what their tiles do to its state: of threads that lie one below the other, the first
// ones (threadIdx.x < across) tell it, if they have rows, and all of them listen. The memory has room for 4 * rows * parts *
// Chain::words.
template <class Algebra, class State, int across, int threads> struct Chain {
    using Value = typename Algebra::Value;
    using Both = detail::Both<Algebra>;
    static constexpr int words = told_words<Value> + told_words<State>;
    static constexpr int down = threads / across, places = across * (threads / (across > 32 ? across : 32));

    uint64_t* memory;
    int64_t first, stride, next;  // place of part 0, from part to part, from row to row
    int64_t turns;                // places of one turn
    int64_t part, parts;
    bool tells;

    WEFT_FUNCTION Chain(uint64_t* memory, int64_t row, int64_t rows, int64_t part, int64_t parts, bool has_rows = true)
        : memory(memory), first(across == 1 ? row * parts : row), stride(across == 1 ? 1 : rows), next(across == 1 ? parts : 1),
          turns(rows * parts), part(part), parts(parts), tells(has_rows && threadIdx.x < across) {}

    // Of what tiles do, and after these, of states.
    WEFT_FUNCTION uint64_t* place(int64_t of_part, uint32_t turn, int row = 0) const {
        return memory + ((turn & 3) * turns + first + of_part * stride + row * next) * told_words<Value>;
    }
    WEFT_FUNCTION uint64_t* place_of_state(int64_t of_part, uint32_t turn, int row = 0) const {
        return memory + 4 * turns * told_words<Value>
             + ((turn & 3) * turns + first + of_part * stride + row * next) * told_words<State>;
    }

    // Tell the others what this block's tile of a turn does to each of a thread's rows.
    template <int rows> WEFT_FUNCTION void tells_of(const Value (&own)[rows], uint32_t turn) const {
        if (tells) {
#pragma unroll
            for (int v = 0; v < rows; ++v) tell(place(part, turn, v), own[v], turn);
        }
    }
    WEFT_FUNCTION void tells_of(const Value& own, uint32_t turn) const {
        if (tells) tell(place(part, turn), own, turn);
    }

    // For each of a thread's rows, what the parts before this one do in this turn, and what all parts do, always combined in
    // the same way. whole: whether all of that is finite, as far as this thread has heard it. `scratch` has room for `places`
    // values of each row.
    template <int rows>
    WEFT_FUNCTION void hear(
        Prefix<Algebra> (&others)[rows], uint32_t turn, typename Both::Value* scratch, bool& whole) const {
        const int y = threadIdx.x / across;
        const int64_t each = (parts + down - 1) / down;
#pragma unroll
        for (int v = 0; v < rows; ++v) {
            auto both = Both::identity();
            for (int64_t k = y * each; k < (y + 1) * each && k < parts; ++k) {
                const auto other = told<Value>(place(k, turn, v), turn);
                whole = whole && finite_parts(other);
                if (k < part) both.first = Algebra::combine(both.first, other);
                both.second = Algebra::combine(both.second, other);
            }
            const auto all = across == 1 ? reduce<Both, threads>(both, scratch + v * places)
                                         : reduce_down<Both, across, threads>(both, scratch + v * places);
            others[v] = {all.first, all.second};
        }
    }
    WEFT_FUNCTION Prefix<Algebra> hear(uint32_t turn, typename Both::Value* scratch, bool& whole) const {
        Prefix<Algebra> others[1];
        hear(others, turn, scratch, whole);
        return others[0];
    }

    // The same where composing them overflows: the state that is before this part, and the one after all.
    WEFT_FUNCTION void replay(uint32_t turn, State& before, State& last, int value = 0) const {
        for (int64_t k = 0; k < parts; ++k) {
            if (k == part) before = last;
            Algebra::apply(told<Value>(place(k, turn, value), turn), last);
        }
    }

    // Where a tile itself cannot be composed, blocks change the state one after another: from the one before,
    WEFT_FUNCTION State received(uint32_t turn, State before, int value = 0) const {
        return part == 0 ? before : told<State>(place_of_state(part - 1, turn, value), turn);
    }
    // and on to the next; the state after all of them.
    WEFT_FUNCTION State handed_on(uint32_t turn, State after, int value = 0) const {
        if (tells) tell(place_of_state(part, turn, value), after, turn);
        return told<State>(place_of_state(parts - 1, turn, value), turn);
    }
};

}  // namespace weft
