// A call that was made before, without Python between its steps: guard, allocate, take addresses, launch.
//
// The interpreter's functions are declared here, so that no headers of Python are needed, and <cmath> is not, which would be a
// quarter of the time to compile.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

extern "C" {
struct object;
object* PyObject_Vectorcall(object* callable, object* const* arguments, size_t count, object* names);
object* PyObject_VectorcallMethod(object* name, object* const* arguments, size_t count, object* names);
object* PyObject_GetAttr(object* holder, object* name);
int PyObject_IsTrue(object* value);
unsigned long long PyLong_AsUnsignedLongLong(object* value);
long PyLong_AsLong(object* value);
object* PyLong_FromLong(long value);
double PyFloat_AsDouble(object* value);
object* PyObject_Type(object* value);
int PyObject_RichCompareBool(object* a, object* b, int how);
extern object PyFloat_Type;
object* PyErr_Occurred();
void PyErr_Clear();
object* PyDict_GetItemWithError(object* dict, object* key);
object* PyCell_Get(object* cell);
object* PyFunction_GetCode(object* function);
object* PyFunction_GetDefaults(object* function);
object* PyFunction_GetKwDefaults(object* function);
object* PyTuple_New(ptrdiff_t size);
object* PyTuple_GetSlice(object* tuple, ptrdiff_t from, ptrdiff_t to);
object* PyTuple_GetItem(object* tuple, ptrdiff_t position);
int PyTuple_SetItem(object* tuple, ptrdiff_t position, object* value);
void Py_IncRef(object* value);
void Py_DecRef(object* value);
void* PyEval_SaveThread();
void PyEval_RestoreThread(void* state);
struct method {
    const char* name;
    object* (*function)(object* self, object* const* arguments, ptrdiff_t count);
    int flags;
    const char* text;
};
object* PyCFunction_NewEx(method* definition, object* self, object* module);
}

namespace weft {

constexpr int most = 16;           // arguments of a call, or of a launch; results
constexpr int most_launches = 64;  // of a call
constexpr int most_slots = 64;     // of a launch
constexpr int most_maps = 8;
constexpr int most_ways = 8;       // calls of one function, of different kinds
constexpr int equal = 2;           // Py_EQ

// The driver's CUlaunchConfig.
struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    void* stream;
    void* attributes;
    unsigned attribute_count;
};

// Slot `slot` of a launch takes the address of argument or result `index`, as many bytes on as its word says, or the value of
// argument `index`.
struct Given {
    enum Kind : int64_t { ARGUMENT, RESULT, NUMBER } kind;
    int64_t slot, index;
};

// A tensor map of what lies `offset` bytes behind an argument or a result: the driver's encoding for another address.
struct Map {
    int64_t kind, index, offset;  // the former of Given
    unsigned char encoding[128];
};

// A kernel of the GPU, launched by the driver's `launch`; or, where `host` is set, a function of the CPU; or, where `clear` is,
// the driver's that sets memory to 0: its words are the address and the bytes. failed: raises what a status says, nullptr where
// a launch cannot fail.
struct Launch {
    int (*launch)(const LaunchConfig*, void* function, void** parameters, void** extra);
    void* function;
    int64_t (*host)(const void* slots, int threads);
    int (*clear)(uint64_t address, unsigned char value, size_t bytes, void* stream);
    object* failed;
    LaunchConfig config;
    int64_t slots, given_count;
    uint64_t words[most_slots];
    Given given[most];
    int (*replace_address)(void* map, void* address);  // the driver's
    int64_t map_count;
    Map map[most_maps];  // parameters after the slots
};

// A place that the program of a call was made from, and the object that was there (nullptr: none). `weft/runtime/guard.py`
// makes these records.
struct Place {
    enum Kind : int64_t { DICT, CELL, CODE, DEFAULTS, KEYWORD_DEFAULTS, ASK } kind;
    object *holder, *name, *value;
};

struct Guard {
    int64_t count;
    Place places[1];  // `count` of them
};

// What an argument has to be: a tensor like the one before, a float (of a finite size that is no larger than `largest`), the same
// integer, text or None, or the very tensor that an earlier argument is.
enum Argument : int64_t { FLOAT, TENSOR, SAME, AGAIN };

struct Call {
    const Guard* const* guard;  // nullptr where nothing is watched
    const int64_t* generation;  // of what was measured of plans, which is to be `then`
    int64_t then;
    object *miss, *data_ptr, *is_nested, *check, *modes, *forward_mode, *level, *default_dtype, *dtype, *empty, *fill;
    object *where, *device, *plain;
    object *changed, *none;  // `changed` of a tuple of tensors tells autograd that they are written
    object* current;    // the current device, which is to be `device`; nullptr where there is one alone
    object* recording;  // whether gradients are recorded; nullptr where no tensor asks for its own
    object* record;  // of the arguments and a tuple of what is made, for autograd; nullptr where a call is not recorded
    int64_t shown;   // how many of what it gives are returned, from the first on
    int64_t arguments, results, returned, launches;  // what is made and not returned is memory of the call's own
    int64_t where_count;  // arguments of `where`: which says the stream of a device, or how many threads to use
    Argument argument[most];
    object* same[most];  // where an argument is to be the same
    object* otherwise[most];  // what an argument is that is left out; nullptr where it may not be
    double largest[most];  // of a float
    int64_t earlier[most];  // the argument that one is again
    int64_t bytes[most], written[most];  // of a tensor, from its first to its last element; whether it is written
    uint64_t past[most];  // of a tensor, how far it begins past a multiple of 32 bytes
    int64_t back[most];  // what is returned: an argument, or below 0 the next that is made
    object* result[most][3];  // sizes, strides, dtype
    object* filled[most];  // with what, nullptr where nothing is
    Launch launch[most_launches];
};

// Calls of one function, tried in order.
struct Ways {
    int64_t count;
    const Call* calls[most_ways];
};

// What has been asked for one of the ways already. dtype: the default one, of which nothing but the address is used; plain: a bit
// for each argument that is a tensor and not nested.
struct Asked {
    object* dtype;
    uint32_t plain;
};

// A new reference to an object, or the object nullptr.
inline object* kept(object* value) {
    Py_IncRef(value);
    return value;
}

inline bool address_of(object* tensor, object* data_ptr, uint64_t& address) {
    object* number = PyObject_Vectorcall(data_ptr, &tensor, 1, nullptr);
    if (number == nullptr) return false;
    address = PyLong_AsUnsignedLongLong(number);
    Py_DecRef(number);
    return true;
}

// Whether the same objects are where they were: 1 or 0; -1 for an error.
inline int holds(const Guard& guard) {
    for (int64_t k = 0; k < guard.count; ++k) {
        const Place& place = guard.places[k];
        object* found = nullptr;  // borrowed
        switch (place.kind) {
            case Place::DICT:
                found = PyDict_GetItemWithError(place.holder, place.name);
                if (found == nullptr && PyErr_Occurred()) return -1;
                break;
            case Place::CELL:
                found = PyCell_Get(place.holder);
                if (found != nullptr) Py_DecRef(found);  // the cell holds it
                break;
            case Place::CODE: found = PyFunction_GetCode(place.holder); break;
            case Place::DEFAULTS: found = PyFunction_GetDefaults(place.holder); break;
            case Place::KEYWORD_DEFAULTS: found = PyFunction_GetKwDefaults(place.holder); break;
            case Place::ASK: {  // the last one, as it may run any Python
                object* const answer = PyObject_Vectorcall(place.holder, nullptr, 0, nullptr);
                if (answer == nullptr) return -1;
                const int truth = PyObject_IsTrue(answer);
                Py_DecRef(answer);
                return truth;
            }
        }
        if (found != place.value) return 0;
    }
    return 1;
}

// 1 or 0 as the number that a call gives is above a bound or not; -1 for an error.
inline int number_above(object* number, long bound) {
    if (number == nullptr) return -1;
    const long value = PyLong_AsLong(number);
    Py_DecRef(number);
    return value > bound;
}

// 1 or 0 as the current device is that of a call or not; -1 for an error.
inline int is_current_device(const Call& call) {
    object* const number = PyObject_Vectorcall(call.current, nullptr, 0, nullptr);
    if (number == nullptr) return -1;
    const long value = PyLong_AsLong(number);
    Py_DecRef(number);
    return value == PyLong_AsLong(call.device);
}

// 1 or 0 as two objects are of one type and equal or not; -1 for an error.
inline int is_same(object* a, object* b) {
    if (a == b) return 1;
    object *const first = PyObject_Type(a), *const second = PyObject_Type(b);
    Py_DecRef(first);  // the objects hold them
    Py_DecRef(second);
    return first == second ? PyObject_RichCompareBool(a, b, equal) : 0;
}

// Whether a tensor that is written shares memory with another one, for all that their ends tell.
inline bool may_overlap(const Call& call, const uint64_t* addresses) {
    for (int k = 0; k < call.arguments; ++k) {
        if (call.argument[k] != TENSOR || !call.written[k]) continue;
        for (int j = 0; j < call.arguments; ++j) {
            if (j == k || call.argument[j] != TENSOR) continue;
            if (addresses[k] < addresses[j] + call.bytes[j] && addresses[j] < addresses[k] + call.bytes[k]) return true;
        }
    }
    return false;
}

// Fill what was made. Whether that went well.
inline bool fill(const Call& call, int k, object* made) {
    if (call.filled[k] == nullptr) return true;
    object* const given[2] = {made, call.filled[k]};
    object* const same = PyObject_VectorcallMethod(call.fill, given, 2, nullptr);
    if (same != nullptr) Py_DecRef(same);
    return same != nullptr;
}

// How many arguments a call writes.
inline int writes(const Call& call) {
    int count = 0;
    for (int k = 0; k < call.arguments; ++k) count += call.written[k] != 0;
    return count;
}

// Tell autograd of the tensors that are written: what it saved of them is no more. Whether that went well.
inline bool tell_changed(const Call& call, object* const* arguments) {
    const int count = writes(call);
    if (count == 0) return true;
    object* const all = PyTuple_New(count);
    if (all == nullptr) return false;
    for (int k = 0, place = 0; k < call.arguments; ++k) {
        if (call.written[k]) PyTuple_SetItem(all, place++, kept(arguments[k]));
    }
    object* const told = PyObject_Vectorcall(call.changed, &all, 1, nullptr);
    Py_DecRef(all);
    if (told != nullptr) Py_DecRef(told);
    return told != nullptr;
}

// Raise what a launch failed with.
inline void fail(const Launch& launch, object* none, int status) {
    object* const number = PyLong_FromLong(status);
    if (number == nullptr) return;
    object* const given[2] = {number, none};
    PyObject_Vectorcall(launch.failed, given, 2, nullptr);
    Py_DecRef(number);
}

// What a call gives: arguments and what it made, which is handed on. nullptr with Python's error set.
inline object* given_back(const Call& call, object* const* arguments, object* const* made) {
    if (call.returned == 0) return kept(call.none);
    if (call.returned == 1) return call.back[0] < 0 ? made[0] : kept(arguments[call.back[0]]);
    object* const all = PyTuple_New(call.returned);
    for (int64_t k = 0, next = 0; k < call.returned; ++k) {
        object* const one = call.back[k] < 0 ? made[next++] : kept(arguments[call.back[k]]);
        if (all != nullptr) PyTuple_SetItem(all, k, one);
        else Py_DecRef(one);
    }
    return all;
}

// What autograd makes of a call with these arguments, of which `made` is handed on. nullptr with Python's error set.
inline object* recorded(const Call& call, object* const* arguments, object* const* made) {
    object* given[most + 1];
    object* const all = PyTuple_New(call.returned);
    for (int64_t k = 0; k < call.returned; ++k) {
        if (all != nullptr) PyTuple_SetItem(all, k, made[k]);
        else Py_DecRef(made[k]);
    }
    if (all == nullptr) return nullptr;
    std::memcpy(given, arguments, call.arguments * sizeof(object*));
    given[call.arguments] = all;
    object* const found = PyObject_Vectorcall(call.record, given, call.arguments + 1, nullptr);
    Py_DecRef(all);
    if (found == nullptr || call.returned == 1 || call.shown == call.returned) return found;
    object* const part = call.shown == 1 ? kept(PyTuple_GetItem(found, 0)) : PyTuple_GetSlice(found, 0, call.shown);
    Py_DecRef(found);
    return part;
}

// Whether what is no tensor among the arguments is what the Call was made for, and the numbers: 1 or 0; -1 for an error.
inline int numbers_are_alike(const Call& call, object* const* arguments, double* numbers) {
    for (int k = 0; k < call.arguments; ++k) {
        if (call.argument[k] == SAME) {
            if (const int same = is_same(arguments[k], call.same[k]); same != 1) return same;
        } else if (call.argument[k] == AGAIN) {
            if (arguments[k] != arguments[call.earlier[k]]) return 0;
        } else if (call.argument[k] == FLOAT) {
            object* const type = PyObject_Type(arguments[k]);
            Py_DecRef(type);  // the argument holds it
            if (type != &PyFloat_Type) return 0;  // an int is another program
            numbers[k] = PyFloat_AsDouble(arguments[k]);
            if (PyErr_Occurred()) return -1;
            const double size = numbers[k] < 0 ? -numbers[k] : numbers[k];
            if (size > call.largest[k] && size - size == 0) return 0;  // a finite one
        }
    }
    return 1;
}

// The result of a call like the one the Call was made for; `miss` for another; nullptr with Python's error set.
inline object* run(const Call& call, object* const* arguments, ptrdiff_t count, Asked& asked) {
    if (count > call.arguments || asked.dtype != call.dtype || *call.generation != call.then) return kept(call.miss);
    object* all[most];
    if (count < call.arguments) {
        std::memcpy(all, arguments, count * sizeof(object*));
        for (; count < call.arguments; ++count) {
            all[count] = call.otherwise[count];
            if (all[count] == nullptr) return kept(call.miss);
        }
        arguments = all;
    }
    double numbers[most];
    if (const int alike = numbers_are_alike(call, arguments, numbers); alike != 1) return alike < 0 ? nullptr : kept(call.miss);
    if (call.current != nullptr) {
        if (const int is_current = is_current_device(call); is_current != 1) return is_current < 0 ? nullptr : kept(call.miss);
    }
    object* tensors[most];
    uint64_t addresses[most], results[most];
    int tensor_count = 0;
    for (int k = 0; k < count; ++k) {
        if (call.argument[k] == TENSOR) tensors[tensor_count++] = arguments[k];
    }
    if (call.recording != nullptr) {
        object* const answer = PyObject_Vectorcall(call.recording, nullptr, 0, nullptr);
        if (answer == nullptr) return nullptr;
        const bool is_recorded = PyObject_IsTrue(answer) == 1;
        Py_DecRef(answer);
        if (is_recorded != (call.record != nullptr)) return kept(call.miss);
    }
    if (call.guard != nullptr) {
        const int same = holds(**call.guard);
        if (same != 1) return same < 0 ? nullptr : kept(call.miss);
    }
    for (int k = 0; k < count; ++k) {  // the check below ends the process on a nested tensor
        if (call.argument[k] != TENSOR || asked.plain >> k & 1) continue;
        object* const nested = PyObject_GetAttr(arguments[k], call.is_nested);
        if (nested == nullptr) {  // no tensor at all
            PyErr_Clear();
            return kept(call.miss);
        }
        Py_DecRef(nested);
        if (nested != call.plain) return kept(call.miss);
        asked.plain |= 1u << k;
    }
    object* alike = PyObject_Vectorcall(call.check, tensors, tensor_count, nullptr);
    if (alike == nullptr) return nullptr;
    const bool same = PyObject_IsTrue(alike) == 1;
    Py_DecRef(alike);
    if (!same) return kept(call.miss);
    uint64_t otherwise = 0;  // bits in which tensors begin elsewhere
    for (int k = 0; k < count; ++k) {
        if (call.argument[k] == TENSOR) {
            if (!address_of(arguments[k], call.data_ptr, addresses[k])) return nullptr;
            otherwise |= addresses[k] ^ call.past[k];
        } else if (call.argument[k] == AGAIN) {
            addresses[k] = addresses[call.earlier[k]];
        }
    }
    if (otherwise & 31 || may_overlap(call, addresses)) return kept(call.miss);
    object* where_number = PyObject_Vectorcall(call.where, &call.device, call.where_count, nullptr);
    if (where_number == nullptr) return nullptr;
    const uint64_t where = PyLong_AsUnsignedLongLong(where_number);
    Py_DecRef(where_number);
    object* made[most];
    for (int k = 0; k < call.results; ++k) {
        made[k] = PyObject_Vectorcall(call.empty, call.result[k], 3, nullptr);
        if (made[k] == nullptr || !address_of(made[k], call.data_ptr, results[k]) || !fill(call, k, made[k])) {
            for (int j = 0; j <= k; ++j) {
                if (made[j] != nullptr) Py_DecRef(made[j]);
            }
            return nullptr;
        }
    }
    int64_t own = 0;  // of what is made: that is returned
    for (int64_t k = 0; k < call.returned; ++k) own += call.back[k] < 0;
    if (!tell_changed(call, arguments)) {
        for (int k = 0; k < call.results; ++k) Py_DecRef(made[k]);
        return nullptr;
    }
    int status = 0, begun = 0;
    while (begun < call.launches && status == 0) {
        const Launch& launch = call.launch[begun++];
        uint64_t words[most_slots];
        alignas(64) unsigned char maps[most_maps][sizeof(Map::encoding)];
        void* parameters[most_slots + most_maps];
        std::memcpy(words, launch.words, launch.slots * sizeof(uint64_t));
        for (int g = 0; g < launch.given_count; ++g) {
            const Given& given = launch.given[g];
            if (given.kind == Given::NUMBER) std::memcpy(&words[given.slot], &numbers[given.index], sizeof(double));
            else words[given.slot] += given.kind == Given::ARGUMENT ? addresses[given.index] : results[given.index];
        }
        for (int s = 0; s < launch.slots; ++s) parameters[s] = &words[s];
        for (int m = 0; m < launch.map_count && status == 0; ++m) {
            const Map& map = launch.map[m];
            std::memcpy(maps[m], map.encoding, sizeof map.encoding);
            const uint64_t address = map.kind == Given::ARGUMENT ? addresses[map.index] : results[map.index];
            status = launch.replace_address(maps[m], reinterpret_cast<void*>(address + map.offset));
            parameters[launch.slots + m] = maps[m];
        }
        if (status != 0) break;
        LaunchConfig config = launch.config;
        config.stream = reinterpret_cast<void*>(where);
        void* const state = PyEval_SaveThread();  // a full stream may wait for a callback that needs the interpreter
        status = launch.host != nullptr    ? launch.host(words, int(where)) != 0
                 : launch.clear != nullptr ? launch.clear(words[0], 0, words[1], config.stream)
                                           : launch.launch(&config, launch.function, parameters, nullptr);
        PyEval_RestoreThread(state);
    }
    for (int64_t k = status == 0 ? own : 0; k < call.results; ++k) Py_DecRef(made[k]);
    if (status == 0) return call.record != nullptr ? recorded(call, arguments, made) : given_back(call, arguments, made);
    if (begun == 1 || !writes(call)) return kept(call.miss);  // the long way tells what is wrong
    fail(call.launch[begun - 1], call.none, status);  // what has begun to write is not run again
    return nullptr;
}

// The result of the first of the ways that a call is like; `miss` where it is like none; nullptr with Python's error set.
inline object* run(const Ways& ways, object* const* arguments, ptrdiff_t count) {
    const Call& any = *ways.calls[0];  // what follows is alike in all
    if (const int seen = number_above(PyObject_Vectorcall(any.modes, nullptr, 0, nullptr), 0)) {
        return seen < 0 ? nullptr : kept(any.miss);
    }
    if (const int seen = number_above(PyObject_GetAttr(any.forward_mode, any.level), -1)) {
        return seen < 0 ? nullptr : kept(any.miss);
    }
    object* const dtype = PyObject_Vectorcall(any.default_dtype, nullptr, 0, nullptr);
    if (dtype == nullptr) return nullptr;
    Py_DecRef(dtype);
    Asked asked{dtype, 0};
    for (int64_t k = 0; k < ways.count; ++k) {
        object* const made = run(*ways.calls[k], arguments, count, asked);
        if (made != any.miss) return made;
        Py_DecRef(made);
    }
    return kept(any.miss);
}

}  // namespace weft

extern "C" object* quick_call(object* self, object* const* arguments, ptrdiff_t count) {
    return weft::run(*reinterpret_cast<const weft::Ways*>(PyLong_AsUnsignedLongLong(self)), arguments, count);
}

// A function of Python's for the Ways at the address that `self`, an int, is.
extern "C" object* make_quick_call(object* self) {
    static method definition = {"quick", quick_call, 0x80, nullptr};
    return PyCFunction_NewEx(&definition, self, nullptr);
}

extern "C" int64_t size_of_call() { return sizeof(weft::Call); }
