// The functions that instrumented code calls (-fsanitize=...). Elsewhere the sanitizers' libraries define them, but no
// such library is linked here.
#include <string.h>

#include "runtime.h"

#define CODE return_of(FRAME)

namespace {
inline void access(const volatile void* address, uint32_t bytes, bool writes, bool aligned, uintptr_t code) {
    check_access(reinterpret_cast<uintptr_t>(address), bytes, writes, false, aligned, code);
}

struct Place {  // in the source, as the compiler stores it
    const char* file;
    uint32_t line, column;
};
struct Type {
    uint16_t kind, info;
    char name[1];  // and more
};
struct OutOfBounds {
    Place place;
    const Type* array;
};
struct Misaligned {
    Place place;
    const void* type;
    uint8_t log_alignment, access;
};

[[noreturn]] void fail_at(const char* kind, const Place& place, uintptr_t code, uintptr_t frame) {
    say("kind", "%s", kind);
    say_where("", {place.file, (int)place.line, 0});
    say_places("code", code, frame);
    say_current_thread();
    end_with_report(1);
}
}  // namespace

extern "C" {
#define HOOKS(n)                                                                 \
    void __tsan_read##n(void* p) { access(p, n, false, true, CODE); }            \
    void __tsan_write##n(void* p) { access(p, n, true, true, CODE); }            \
    void __tsan_volatile_read##n(void* p) { access(p, n, false, true, CODE); }   \
    void __tsan_volatile_write##n(void* p) { access(p, n, true, true, CODE); }   \
    void __tsan_unaligned_read##n(void* p) { access(p, n, false, false, CODE); } \
    void __tsan_unaligned_write##n(void* p) { access(p, n, true, false, CODE); } \
    void __tsan_read_write##n(void* p) {                                         \
        access(p, n, false, true, CODE);                                         \
        access(p, n, true, true, CODE);                                          \
    }                                                                            \
    void __tsan_unaligned_read_write##n(void* p) {                               \
        access(p, n, false, false, CODE);                                        \
        access(p, n, true, false, CODE);                                         \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void* p, size_t n) { access(p, (uint32_t)n, false, false, CODE); }
void __tsan_write_range(void* p, size_t n) { access(p, (uint32_t)n, true, false, CODE); }
void* __tsan_memcpy(void* to, const void* from, size_t n) {
    access(from, (uint32_t)n, false, false, CODE);
    access(to, (uint32_t)n, true, false, CODE);
    return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
    access(from, (uint32_t)n, false, false, CODE);
    access(to, (uint32_t)n, true, false, CODE);
    return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
    access(to, (uint32_t)n, true, false, CODE);
    return memset(to, value, n);
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

void __sanitizer_cov_trace_pc() {  // called in each basic block; the count of calls reveals an endless loop
    if (threads.current < 0 || ++steps_of((uint32_t)threads.current) <= request.steps) return;
    say("kind", "endless");
    say("steps", "%lu", (unsigned long)request.steps);
    say_places("code", CODE, caller_of(FRAME));
    say_current_thread();
    end_with_report(1);
}

void __ubsan_handle_out_of_bounds_abort(OutOfBounds* data, uintptr_t index) {
    say("index", "%ld", (long)(int64_t)index);
    say("type", "%s", data->array->name);
    fail_at("array", data->place, CODE, caller_of(FRAME));
}
void __ubsan_handle_divrem_overflow_abort(Place* place, uintptr_t, uintptr_t) {
    fail_at("division", *place, CODE, caller_of(FRAME));
}
void __ubsan_handle_type_mismatch_v1_abort(Misaligned* data, uintptr_t address) {
    say("access", "access");
    if (is_unset_pointer(address)) fail_at("unset_pointer", data->place, CODE, caller_of(FRAME));
    say("alignment", "%u", 1u << data->log_alignment);
    say("byte", "%lu", (unsigned long)(address & ((1ull << data->log_alignment) - 1)));
    fail_at("misaligned", data->place, CODE, caller_of(FRAME));
}
}

void msl_atomic(const volatile void* address, uint32_t size, bool reads, bool writes) {
    const uintptr_t code = return_of(caller_of(FRAME));  // the caller of the function in atomic.h
    if (!request.checked) return;
    if (reads) check_access(reinterpret_cast<uintptr_t>(address), size, false, true, true, code);
    if (writes) check_access(reinterpret_cast<uintptr_t>(address), size, true, true, true, code);
}

void msl_fail(const char* kind, const char* operation, msl_where where) {
    say("kind", "%s", kind);
    say("operation", "%s", operation);
    if (where.line) say_where("", where);
    say_places("code", CODE, caller_of(FRAME));
    say_current_thread();
    end_with_report(1);
}
