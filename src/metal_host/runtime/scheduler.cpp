// The scheduler of fibers. It switches to another fiber only where fibers wait for each other: at barriers and at
// operations of a simdgroup. An operation completes when no other lane of the simdgroup can run on, and a barrier when
// no other thread of the threadgroup can.
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"
#include "switch.h"

Threads threads = {0, 0, -1, 0};

namespace {
enum State { READY, AT_SIMD, AT_BARRIER, DONE };
struct Fiber {
    void* stack_pointer;
    char* stack;
    State state;
    const char* operation;  // the barrier or operation at which it waits
    msl_where where;
    uintptr_t code, frame;  // the caller's code and frame
    int flags;              // of a barrier; -1: no barrier
    uint32_t size;          // bytes of the value that the lane shows
    uint64_t steps;
    List<Watched> watched;
    msl_view view;
    msl_thread thread;
};
struct Simdgroup {
    uint32_t ready, at_simd, at_barrier, done, live;  // one bit per lane
    alignas(16) unsigned char shown[MSL_LANES][MSL_SLOT], seen[MSL_LANES][MSL_SLOT];
};
List<Fiber> fibers;
List<Simdgroup> simdgroups;
void* main_stack;
void** arguments;
uint32_t dice = 1;

uint32_t random_below(uint32_t n) {
    dice ^= dice << 13;
    dice ^= dice >> 17;
    dice ^= dice << 5;
    return dice % n;
}

uint32_t pick(uint32_t lanes) {
    if (request.order == 0) return (uint32_t)__builtin_ctz(lanes);
    if (request.order == 1) return 31 - (uint32_t)__builtin_clz(lanes);
    for (uint32_t n = random_below((uint32_t)__builtin_popcount(lanes)); n; n--) lanes &= lanes - 1;
    return (uint32_t)__builtin_ctz(lanes);
}

bool same_text(const char* a, const char* b) { return a == b || strcmp(a, b) == 0; }

bool same_place(const Fiber& a, const Fiber& b) {
    return a.where.line == b.where.line && a.where.call == b.where.call && same_text(a.operation, b.operation) &&
           same_text(a.where.file, b.where.file);
}

void say_place_of(const char* prefix, const Fiber& f) {
    say_where(prefix, f.where);
    threads.stack = reinterpret_cast<uintptr_t>(f.stack);
    say_places(*prefix ? "other_code" : "code", f.code, f.frame);
}

void say_barrier(const char* kind, const Fiber& at, uint32_t waiting, uint32_t finished, uint32_t all) {
    say("kind", "%s", kind);
    say("operation", "%s", at.operation);
    say_place_of("", at);
    say_thread("", threads.group, at.thread.index);
    say("waiting", "%u", waiting);
    say("finished", "%u", finished);
    say("threads", "%u", all);
}

[[noreturn]] void fail_divergent(const Fiber& at, uint32_t first, uint32_t count) {
    uint32_t waiting = 0, finished = 0;
    const Fiber *absent = nullptr, *elsewhere = nullptr;
    for (uint32_t i = first; i < first + count; i++) {
        Fiber& f = fibers[i];
        if (f.state == DONE) {
            finished++;
            if (!absent) absent = &f;
        } else if (same_place(f, at)) {
            waiting++;
        } else if (!elsewhere) {
            elsewhere = &f;
        }
    }
    say_barrier("divergent", at, waiting, finished, count);
    if (absent) say_thread("absent_", threads.group, absent->thread.index);
    if (elsewhere) {
        say("other_operation", "%s", elsewhere->operation);
        say_place_of("other_", *elsewhere);
        say_thread("other_", threads.group, elsewhere->thread.index);
    }
    end_with_report(1);
}

// Completes one operation, and wakes the lanes that wait at it.
void settle_simd(Simdgroup& group, uint32_t number) {
    const Fiber& chosen = fibers[number * MSL_LANES + pick(group.at_simd)];
    uint32_t active = 0;
    for (uint32_t left = group.at_simd; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left);
        if (same_place(fibers[number * MSL_LANES + lane], chosen)) active |= 1u << lane;
    }
    if (chosen.flags >= 0) {
        if (request.checked && active != group.live)
            fail_divergent(chosen, number * MSL_LANES, (uint32_t)__builtin_popcount(group.live));
        order_simdgroup(number, chosen.flags);
    }
    for (uint32_t left = active; left; left &= left - 1) {
        const uint32_t lane = (uint32_t)__builtin_ctz(left);
        Fiber& f = fibers[number * MSL_LANES + lane];
        memcpy(group.seen[lane], group.shown[lane], f.size);
        f.view = {&group.seen[0][0], active, lane};
        f.state = READY;
    }
    group.at_simd &= ~active;
    group.ready |= active;
}

bool settle_barrier() {
    const Fiber* first = nullptr;
    bool all = true;
    for (uint32_t i = 0; i < threads.count; i++) {
        const Fiber& f = fibers[i];
        if (f.state == AT_BARRIER && !first) first = &f;
        all = all && f.state == AT_BARRIER && same_place(f, *first);
    }
    if (!first) return false;
    // An unchecked run does not wait for threads that have ended. GPUs do the same, though Metal does not promise it.
    if (!all && request.checked) fail_divergent(*first, 0, threads.count);
    order_threadgroup(first->flags, first->where);
    observe_barrier();
    for (uint32_t i = 0; i < threads.count; i++)
        if (fibers[i].state == AT_BARRIER) fibers[i].state = READY;
    for (auto& group : simdgroups) {
        group.ready = group.at_barrier;
        group.at_barrier = 0;
    }
    return true;
}

int next_fiber() {
    const uint32_t count = (uint32_t)simdgroups.size();
    uint32_t start = threads.current >= 0 ? (uint32_t)threads.current / MSL_LANES : request.order == 1 ? count - 1 : 0;
    for (;;) {
        if (request.order == 2) start = random_below(count);
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t number = (request.order == 1 ? start + count - i : start + i) % count;
            Simdgroup& group = simdgroups[number];
            if (!group.ready && group.at_simd) settle_simd(group, number);
            if (group.ready) return (int)(number * MSL_LANES + pick(group.ready));
        }
        if (!settle_barrier()) return -1;
    }
}

void go_to(int fiber, void** save) {
    threads.current = fiber;
    if (fiber >= 0) {
        simdgroups[(uint32_t)fiber / MSL_LANES].ready &= ~(1u << fiber % MSL_LANES);
        threads.stack = reinterpret_cast<uintptr_t>(fibers[fiber].stack);
    }
    void* to = fiber >= 0 ? fibers[fiber].stack_pointer : main_stack;
    if (save != (fiber >= 0 ? &fibers[fiber].stack_pointer : &main_stack)) msl_switch(save, to);
}

void wait_at(State state, const char* operation, msl_where where, int flags, uint32_t size) {
    const uint32_t me = (uint32_t)threads.current;
    Fiber& f = fibers[me];
    if (request.observe) observe_wait(operation, state == AT_BARRIER, flags >= 0, where);
    f.state = state;
    f.operation = operation;
    f.where = where;
    f.code = return_of(FRAME);
    f.frame = caller_of(FRAME);
    f.flags = flags;
    f.size = size;
    Simdgroup& group = simdgroups[me / MSL_LANES];
    (state == AT_SIMD ? group.at_simd : group.at_barrier) |= 1u << me % MSL_LANES;
    go_to(next_fiber(), &f.stack_pointer);
}

void fiber_body() {
    const uint32_t me = (uint32_t)threads.current;
    msl_kernel_entry(arguments, &fibers[me].thread);
    fibers[me].state = DONE;
    simdgroups[me / MSL_LANES].done |= 1u << me % MSL_LANES;
    void* never_again;
    go_to(next_fiber(), &never_again);
}

char* allocate_stack() {
    constexpr size_t GUARD = 1 << 16;  // a whole number of pages, whatever the page size
    void* memory = mmap(nullptr, STACK + GUARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) out_of_memory();
    mprotect(memory, GUARD, PROT_NONE);
    return static_cast<char*>(memory) + GUARD;
}

uint32_t full_size(int k) {
    return request.threadgroup[k] < request.grid[k] ? request.threadgroup[k] : request.grid[k];
}

void run_threadgroup() {
    const msl_thread first = thread_at(threads.group, 0);
    const uint32_t* size = first.threads_per_threadgroup;
    threads.count = size[0] * size[1] * size[2];
    simdgroups.resize((threads.count + MSL_LANES - 1) / MSL_LANES);
    begin_threadgroup();
    for (uint32_t i = 0; i < threads.count; i++) {
        Fiber& f = fibers[i];
        f.thread = thread_at(threads.group, i);
        f.state = READY;
        f.steps = 0;
        f.watched.clear();
        f.stack_pointer = new_stack(f.stack + STACK, fiber_body);
    }
    for (uint32_t i = 0; i < simdgroups.size(); i++) {
        Simdgroup& group = simdgroups[i];
        const uint32_t left = threads.count - i * MSL_LANES;
        group.live = group.ready = left >= MSL_LANES ? ~0u : (1u << left) - 1;
        group.at_simd = group.at_barrier = group.done = 0;
    }
    threads.current = -1;
    go_to(next_fiber(), &main_stack);
    threads.current = -1;
    if (has_deferred_report()) end_with_report(1);
    observe_end_of_threadgroup();
}
}  // namespace

uint64_t& steps_of(uint32_t thread) { return fibers[thread].steps; }

const List<Watched>& watched_now() { return fibers[(uint32_t)threads.current].watched; }

void* msl_watch(void* array, size_t bytes, size_t item, const char* name) {
    fibers[(uint32_t)threads.current].watched.push(
        {reinterpret_cast<uintptr_t>(array), (uint32_t)bytes, (uint32_t)item, name});
    return array;
}

void msl_unwatch() { fibers[(uint32_t)threads.current].watched.pop(); }

// Threadgroups at the edges of the grid may be smaller than the others.
msl_thread thread_at(uint32_t group, uint32_t thread) {
    msl_thread t;
    uint32_t full = 1, size = 1, group_left = group, thread_left = thread;
    for (int k = 0; k < 3; k++) {
        t.threads_per_grid[k] = request.grid[k];
        t.dispatch_threads[k] = full_size(k);
        t.threadgroups[k] = (request.grid[k] + full_size(k) - 1) / full_size(k);
        t.threadgroup_position[k] = group_left % t.threadgroups[k];
        group_left /= t.threadgroups[k];
        const uint32_t first = t.threadgroup_position[k] * full_size(k), left = request.grid[k] - first;
        t.threads_per_threadgroup[k] = left < full_size(k) ? left : full_size(k);
        t.position_in_threadgroup[k] = thread_left % t.threads_per_threadgroup[k];
        thread_left /= t.threads_per_threadgroup[k];
        t.position_in_grid[k] = first + t.position_in_threadgroup[k];
        full *= full_size(k);
        size *= t.threads_per_threadgroup[k];
    }
    t.index = thread;
    t.lane = thread % MSL_LANES;
    t.simdgroup = thread / MSL_LANES;
    t.simdgroups = (size + MSL_LANES - 1) / MSL_LANES;
    t.dispatch_simdgroups = (full + MSL_LANES - 1) / MSL_LANES;
    return t;
}

void run_dispatch(void** pointers) {
    if (!full_size(0) || !full_size(1) || !full_size(2)) return;
    arguments = pointers;
    dice = request.seed * 2654435761u | 1;
    fibers.resize(full_size(0) * full_size(1) * full_size(2));
    for (auto& fiber : fibers) fiber.stack = allocate_stack();
    const msl_thread first = thread_at(0, 0);
    const uint32_t* groups = first.threadgroups;
    const uint32_t count = groups[0] * groups[1] * groups[2];
    for (uint32_t i = 0; i < count; i++) {
        threads.group = request.order == 1 ? count - 1 - i : i;
        run_threadgroup();
    }
}

void msl_threadgroup_barrier(int flags, msl_where where) {
    wait_at(AT_BARRIER, "threadgroup_barrier", where, flags, 0);
}
void msl_simdgroup_barrier(int flags, msl_where where) { wait_at(AT_SIMD, "simdgroup_barrier", where, flags, 0); }

void msl_exchange(const void* value, uint32_t size, const char* operation, msl_where where, msl_view* view) {
    const uint32_t me = (uint32_t)threads.current;
    memcpy(simdgroups[me / MSL_LANES].shown[me % MSL_LANES], value, size);
    wait_at(AT_SIMD, operation, where, -1, size);
    *view = fibers[me].view;
}

uint32_t msl_lane() { return (uint32_t)threads.current % MSL_LANES; }
