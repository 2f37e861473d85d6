// Vector clocks: what has happened before a point of a program, as far as its synchronisation says.
//
// An actor is a thread or an asynchronous agent of a block; its events carry its clock, which grows. A vector is the
// clock of each actor of one block, and of other blocks where something was learned of them. Vectors are shared and never
// changed once shared, so that a barrier of n threads makes one vector, not n.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace weft::sim {

// The block of an actor and its number there.
using Actor = uint32_t;
constexpr uint32_t actor_bits = 13;  // threads, then agents
constexpr uint32_t block_limit = 1u << (32 - actor_bits);
constexpr Actor actor(uint32_t block, uint32_t number) { return block << actor_bits | number; }
constexpr uint32_t block_of(Actor a) { return a >> actor_bits; }
constexpr uint32_t number_of(Actor a) { return a & ((1u << actor_bits) - 1); }

struct Vector {
    uint32_t block = 0;
    std::vector<uint32_t> own;                                          // by the actor's number
    std::vector<std::pair<uint32_t, std::vector<uint32_t>>> others;  // by block, ascending

    uint32_t at(Actor a) const {
        const uint32_t number = number_of(a);
        if (block_of(a) == block) return number < own.size() ? own[number] : 0;
        for (const auto& [other, clocks] : others) {
            if (other == block_of(a)) return number < clocks.size() ? clocks[number] : 0;
        }
        return 0;
    }
    void raise(uint32_t of, uint32_t number, uint32_t clock) {
        auto& clocks = of == block ? own : other(of);
        if (clocks.size() <= number) clocks.resize(number + 1, 0);
        clocks[number] = std::max(clocks[number], clock);
    }
    void raise(Actor a, uint32_t clock) { raise(block_of(a), number_of(a), clock); }
    void join(const Vector& v) {
        join(v.block == block ? own : other(v.block), v.own);
        for (const auto& [b, clocks] : v.others) join(b == block ? own : other(b), clocks);
    }
    // To what v also knows.
    void limit(const Vector& v) {
        for (size_t k = 0; k < own.size(); ++k) own[k] = std::min(own[k], v.at(actor(block, uint32_t(k))));
        for (auto& [b, clocks] : others) {
            for (size_t k = 0; k < clocks.size(); ++k) clocks[k] = std::min(clocks[k], v.at(actor(b, uint32_t(k))));
        }
    }

private:
    std::vector<uint32_t>& other(uint32_t b) {
        auto place = std::lower_bound(others.begin(), others.end(), b, [](const auto& o, uint32_t key) { return o.first < key; });
        if (place == others.end() || place->first != b) place = others.insert(place, {b, {}});
        return place->second;
    }
    static void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
        if (into.size() < from.size()) into.resize(from.size(), 0);
        for (size_t k = 0; k < from.size(); ++k) into[k] = std::max(into[k], from[k]);
    }
};
using Shared = std::shared_ptr<const Vector>;

enum class Space : uint32_t { global, shared };

// What an actor has observed: a shared vector, its own clock beside it. `proxy` is the part of it that a proxy fence has
// made visible to the asynchronous proxy, with the own clock at the last fence; global and shared memory have fences of
// their own.
struct Knowledge {
    Actor self = 0;
    uint32_t clock = 1;
    uint32_t fenced[2] = {0, 0};
    Shared seen, proxy[2];

    bool knows(Actor a, uint32_t at) const { return a == self ? at <= clock : seen && at <= seen->at(a); }
    bool proxy_knows(Actor a, uint32_t at, Space space) const {
        const auto s = uint32_t(space);
        return a == self ? at <= fenced[s] : proxy[s] && at <= proxy[s]->at(a);
    }
};

// What a synchronising object hands on: the join of those who released.
struct Message {
    std::shared_ptr<Vector> seen, proxy[2];

    void take(const Knowledge& k) {
        add(seen, last_seen_, k.seen, k.self, k.clock);
        for (int s = 0; s < 2; ++s) add(proxy[s], last_proxy_[s], k.proxy[s], k.self, k.fenced[s]);
    }
    void take(const Message& m) {
        merge(seen, m.seen);
        for (int s = 0; s < 2; ++s) merge(proxy[s], m.proxy[s]);
    }
    bool empty() const { return !seen; }

private:
    static void merge(std::shared_ptr<Vector>& into, const std::shared_ptr<Vector>& from) {
        if (!from) return;
        if (!into) into = std::make_shared<Vector>(*from);
        else if (into != from) into->join(*from);
    }
    // Joining the vector that was joined last changes nothing: after a barrier all threads hold the same one.
    static void add(std::shared_ptr<Vector>& into, Shared& last, const Shared& from, Actor self, uint32_t clock) {
        if (!from && clock == 0) return;
        if (!into) {
            into = std::make_shared<Vector>();
            into->block = block_of(self);
        }
        if (from && from != last) {
            into->join(*from);
            last = from;
        }
        if (clock) into->raise(self, clock);
    }
    Shared last_seen_, last_proxy_[2];
};

inline Message message_of(const Knowledge& k) {
    Message m;
    m.take(k);
    return m;
}

inline Shared joined(const Shared& own, const std::shared_ptr<Vector>& message, uint32_t block) {
    if (!message) return own;
    auto sum = std::make_shared<Vector>();
    sum->block = block;
    if (own) sum->join(*own);
    sum->join(*message);
    return sum;
}

inline void acquire(Knowledge& k, const Message& m) {
    k.seen = joined(k.seen, m.seen, block_of(k.self));
    for (int s = 0; s < 2; ++s) k.proxy[s] = joined(k.proxy[s], m.proxy[s], block_of(k.self));
}

// All of a barrier's threads know all that any of them knew: the message holds their own vectors, so it replaces them. It
// may not change any more.
inline void adopt(Knowledge& k, const Message& m) {
    if (m.seen && m.seen->block == block_of(k.self)) k.seen = m.seen;
    for (int s = 0; s < 2; ++s) {
        if (m.proxy[s] && m.proxy[s]->block == block_of(k.self)) k.proxy[s] = m.proxy[s];
    }
}

}  // namespace weft::sim
