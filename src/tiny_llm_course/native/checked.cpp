// What the second look at a kernel links to it (checked_build.py). It runs the kernel between pages that nobody may
// touch, defines what the compiler's instrumentation calls, and ends the process at the first fault with a report.
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "kernel.h"

using tiny_llm::Array, tiny_llm::Call;

namespace {

int report = -1;  // a descriptor

void say(const char* format, ...) {
    char line[512];
    va_list values;
    va_start(values, format);
    const int length = vsnprintf(line, sizeof line, format, values);
    va_end(values);
    [[maybe_unused]] auto written = write(report, line, std::min<size_t>(length, sizeof line - 1));
}

// An address in this library, as addr2line wants it.
void say_code(uintptr_t code) {
    Dl_info here, there;
    dladdr(reinterpret_cast<void*>(&say_code), &here);
    if (dladdr(reinterpret_cast<void*>(code), &there) && there.dli_fbase == here.dli_fbase)
        say("code 0x%lx\n", (unsigned long)(code - reinterpret_cast<uintptr_t>(here.dli_fbase)));
}

// at: where the processor stopped, if a signal says so.
[[noreturn]] void end(uintptr_t at = 0) {
    if (at) say_code(at);
    void* calls[64];
    const int depth = backtrace(calls, 64);
    for (int i = 0; i < depth; i++) say_code(reinterpret_cast<uintptr_t>(calls[i]) - 1);
    say("end\n");
    _exit(0);
}

// Memory between two pages that stop whoever touches them: it ends where the second begins, or begins where the first
// ends.
struct Guarded {
    const char* name;  // input, output or MEMORY
    int number;
    char *base, *begin;
    size_t size, whole;
};

constexpr const char* MEMORY = "memory";  // that a kernel asked for
constexpr size_t MARGIN = 1 << 18, MOST = 2000, MOST_ARRAYS = 32;
Guarded all[MOST];
size_t used = 0;

char* guard(const char* name, int number, size_t size, bool at_end, size_t alignment) {
    const size_t page = sysconf(_SC_PAGESIZE), inner = std::max<size_t>(1, (size + page - 1) / page) * page;
    const size_t whole = inner + 2 * MARGIN;
    void* memory = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    char* base = static_cast<char*>(memory);
    mprotect(base + MARGIN, inner, PROT_READ | PROT_WRITE);
    memset(base + MARGIN, 0xff, inner);  // NaN
    const size_t room = (size + alignment - 1) / alignment * alignment;
    char* begin = base + MARGIN + (at_end ? inner - room : 0);
    all[used++] = {name, number, base, begin, size, whole};
    return begin;
}

void release(size_t i) {
    munmap(all[i].base, all[i].whole);
    all[i] = all[--used];
}

bool writes(void* context) {
    [[maybe_unused]] auto* machine = static_cast<ucontext_t*>(context);
#if defined(__linux__) && defined(__x86_64__)
    return machine->uc_mcontext.gregs[REG_ERR] & 2;
#elif defined(__APPLE__) && defined(__aarch64__)
    return machine->uc_mcontext->__es.__esr & 0x40;
#else
    return false;
#endif
}

uintptr_t code_of(void* context) {
    [[maybe_unused]] auto* machine = static_cast<ucontext_t*>(context);
#if defined(__linux__) && defined(__x86_64__)
    return machine->uc_mcontext.gregs[REG_RIP];
#elif defined(__linux__) && defined(__aarch64__)
    return machine->uc_mcontext.pc;
#elif defined(__APPLE__) && defined(__aarch64__)
    return machine->uc_mcontext->__ss.__pc;
#else
    return 0;
#endif
}

void say_memory(const char* address, void* context) {
    for (size_t i = 0; i < used; i++) {
        const auto& [name, number, base, begin, size, whole] = all[i];
        if (address < base || address >= base + whole) continue;
        const bool behind = address >= begin + size;
        say("kind outside\nmemory %s\nnumber %d\naccess %s\n", name, number, writes(context) ? "write" : "read");
        say("side %s\nbytes %ld\nsize %ld\n", behind ? "after" : "before",
            long(behind ? address - begin - size : begin - address), long(size));
        return;
    }
    say("kind pointer\naddress %p\n", address);
}

void stopped(int number, siginfo_t* info, void* context) {
    if (number == SIGSEGV || number == SIGBUS) say_memory(static_cast<char*>(info->si_addr), context);
    if (number == SIGFPE) say("kind division\n");
    if (number == SIGILL || number == SIGTRAP) say("kind impossible\n");
    if (number == SIGABRT) say("kind abort\n");
    if (number == SIGVTALRM) say("kind endless\n");
    end(code_of(context));
}

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGVTALRM};
struct sigaction before[std::size(SIGNALS)];
bool is_running = false;

void set_time(int seconds) {
    const itimerval time = {{0, 0}, {seconds, 0}};
    setitimer(ITIMER_VIRTUAL, &time, nullptr);  // of this process, however busy the machine is
}

void begin_to_watch(int seconds) {
    static char stack[1 << 16];  // for a kernel that has used up its own
    const stack_t own = {.ss_sp = stack, .ss_flags = 0, .ss_size = sizeof stack};
    sigaltstack(&own, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = stopped;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (size_t i = 0; i < std::size(SIGNALS); i++) sigaction(SIGNALS[i], &action, &before[i]);
    set_time(seconds);
    is_running = true;
}

void end_to_watch() {
    is_running = false;
    set_time(0);
    for (size_t i = 0; i < std::size(SIGNALS); i++) sigaction(SIGNALS[i], &before[i], nullptr);
}

// Four parts, one by one: what goes wrong between threads is another matter.
void run_parts(void (*part)(void*, int64_t, int64_t), void* state, int64_t count, int64_t grain) {
    const int64_t share = std::max({grain, (count + 3) / 4, int64_t(1)});
    for (int64_t begin = 0; begin < count; begin += share) part(state, begin, std::min(begin + share, count));
}

void* take(size_t size, size_t alignment) {
    char* found = is_running && used + MOST_ARRAYS < MOST ? guard(MEMORY, 0, size, true, alignment) : nullptr;
    if (found == nullptr) found = static_cast<char*>(aligned_alloc(alignment, (size / alignment + 1) * alignment));
    return found;
}

void give(void* memory) {
    for (size_t i = used; i-- > 0;)
        if (all[i].begin == memory) return release(i);
    free(memory);
}

}  // namespace

// A kernel's vectors and arrays are guarded, too. The linker binds these to this library alone.
void* operator new(size_t size) { return take(size, 16); }
void* operator new[](size_t size) { return take(size, 16); }
void* operator new(size_t size, std::align_val_t alignment) {
    return take(size, std::max<size_t>(16, size_t(alignment)));
}
void* operator new[](size_t size, std::align_val_t alignment) {
    return take(size, std::max<size_t>(16, size_t(alignment)));
}
void operator delete(void* memory) noexcept { give(memory); }
void operator delete[](void* memory) noexcept { give(memory); }
void operator delete(void* memory, size_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { give(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { give(memory); }

extern "C" {

// Runs a kernel twice: arrays end where a guarded page begins, and then begin where one ends. Of outputs the first
// `changed` hold what the kernel is to change; the others hold NaN. bytes: of each array, inputs first.
void checked_run(void (*function)(const Call&), const Array* in, int inputs, const Array* out, int outputs, int changed,
                 const int64_t* bytes, const double* numbers, int64_t threads, int seconds, int descriptor) {
    report = descriptor;
    for (const bool at_end : {true, false}) {
        std::vector<Array> arrays(in, in + inputs);
        arrays.insert(arrays.end(), out, out + outputs);
        for (int i = 0; i < inputs + outputs; i++) {
            const bool is_input = i < inputs;
            char* copy = guard(is_input ? "input" : "output", is_input ? i : i - inputs, bytes[i], at_end, 1);
            if (copy == nullptr) return;
            if (i < inputs + changed) memcpy(copy, arrays[i].data, bytes[i]);
            arrays[i].data = copy;
        }
        begin_to_watch(seconds);
        function({arrays.data(), arrays.data() + inputs, numbers, {run_parts, threads}});
        end_to_watch();
        for (int i = 0; i < outputs; i++) memcpy(out[i].data, arrays[inputs + i].data, bytes[inputs + i]);
        for (size_t i = used; i-- > 0;)
            if (all[i].name != MEMORY) release(i);  // other memory the kernel may still use
    }
}

struct Place {
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
struct Shift {
    Place place;
    const Type *left, *right;
};

void __ubsan_handle_out_of_bounds_abort(OutOfBounds* data, uintptr_t index) {
    say("kind array\nindex %ld\ntype %s\n", (long)index, data->array->name);
    end();
}
void __ubsan_handle_shift_out_of_bounds_abort(Shift* data, uintptr_t, uintptr_t by) {
    say("kind shift\nby %ld\ntype %s\n", (long)(int)by, data->left->name);
    end();
}
void __ubsan_handle_divrem_overflow_abort(void*, uintptr_t, uintptr_t) {
    say("kind division\n");
    end();
}
void __ubsan_handle_missing_return(void*) {
    say("kind no_return\n");
    end();
}
void __ubsan_handle_builtin_unreachable(void*) {
    say("kind impossible\n");
    end();
}
void overflowed() {
    say("kind overflow\n");
    end();
}
void __ubsan_handle_add_overflow_abort(void*, uintptr_t, uintptr_t) { overflowed(); }
void __ubsan_handle_sub_overflow_abort(void*, uintptr_t, uintptr_t) { overflowed(); }
void __ubsan_handle_mul_overflow_abort(void*, uintptr_t, uintptr_t) { overflowed(); }
void __ubsan_handle_negate_overflow_abort(void*, uintptr_t) { overflowed(); }
void __stack_chk_fail() {
    say("kind stack\n");
    end();
}
}
