// The program, which reads the request, runs the kernel and writes the report. A faulty kernel can at worst end this
// process, and a time limit ends it in any case.
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include "runtime.h"

#ifdef __APPLE__
#include <mach-o/dyld.h>
static uintptr_t slide() { return (uintptr_t)_dyld_get_image_vmaddr_slide(0); }
#else
static uintptr_t slide() { return 0; }  // the program is loaded at the address for which it is linked
#endif

Request request;

namespace {
char report[1 << 14], deferred[1 << 14];
size_t report_size, deferred_size;

void say_interrupted(void* context) {
    auto& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
#if defined(__APPLE__) && defined(__aarch64__)
    say_places("code", machine->__ss.__pc, machine->__ss.__fp);
#elif defined(__APPLE__)
    say_places("code", machine->__ss.__rip, machine->__ss.__rbp);
#elif defined(__aarch64__)
    say_places("code", machine.pc, machine.regs[29]);
#else
    say_places("code", (uintptr_t)machine.gregs[REG_RIP], (uintptr_t)machine.gregs[REG_RBP]);
#endif
}

void on_signal(int signal, siginfo_t* info, void* context) {
    const uintptr_t guard = reinterpret_cast<uintptr_t>(info->si_addr) + (1 << 16) - threads.stack;
    if (signal == SIGPROF)
        say("kind", "time");
    else if (signal == SIGFPE)
        say("kind", "division");
    else if (info->si_code > 0 && info->si_code < 0x80 && is_null(reinterpret_cast<uintptr_t>(info->si_addr)))
        say("kind", "null");  // with code 0x80, the address was invalid, and si_addr is 0 whatever it was
    else
        say("kind", "%s", guard < 1 << 16 ? "stack" : "crash");
    say("access", "access");
    say("seconds", "%u", request.seconds);
    say_interrupted(context);
    if (threads.current >= 0) say_current_thread();
    end_with_report(1);
}

void catch_signals() {
    static char stack[1 << 16];
    stack_t alternative = {};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    sigaltstack(&alternative, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGPROF}) sigaction(signal, &action, nullptr);
    itimerval timer = {};
    timer.it_value.tv_sec = request.seconds;  // of this process's processor time
    setitimer(ITIMER_PROF, &timer, nullptr);
}
}  // namespace

void say(const char* key, const char* format, ...) {
    const size_t space = sizeof report - report_size;
    if (space < 256) return;
    report_size += (size_t)snprintf(report + report_size, space, "%s ", key);
    va_list values;
    va_start(values, format);
    const int size = vsnprintf(report + report_size, sizeof report - report_size - 1, format, values);
    va_end(values);
    report_size += (size_t)size < sizeof report - report_size - 1 ? (size_t)size : 0;
    report[report_size++] = '\n';
}

uintptr_t place_of(uintptr_t code) { return code - slide(); }

void say_place(const char* key, uintptr_t code) { say(key, "%lx", (unsigned long)place_of(code)); }

void say_where(const char* prefix, msl_where where) {
    char key[64];
    snprintf(key, sizeof key, "%sfile", prefix);
    say(key, "%s", where.file);
    snprintf(key, sizeof key, "%sline", prefix);
    say(key, "%d", where.line);
}

void say_places(const char* key, uintptr_t code, uintptr_t frame) {
    char text[256];
    int size = snprintf(text, sizeof text, "%lx", (unsigned long)place_of(code));
    for (int i = 0; i < 8 && frame - threads.stack < STACK - 16; i++, frame = caller_of(frame))
        size += snprintf(text + size, sizeof text - (size_t)size, " %lx", (unsigned long)place_of(return_of(frame)));
    say(key, "%s", text);
}

void say_calls(const char* key, uintptr_t code) {
    uintptr_t frame = FRAME;
    while (frame - threads.stack < STACK - 16 && return_of(frame) != code) frame = caller_of(frame);
    say_places(key, code, frame - threads.stack < STACK - 16 ? caller_of(frame) : 0);
}

void say_current_thread() { say_thread("", threads.group, (uint32_t)threads.current); }

void say_thread(const char* prefix, uint32_t group, uint32_t thread) {
    char key[64];
    snprintf(key, sizeof key, "%sthread", prefix);
    const msl_thread t = thread_at(group, thread);
    const uint32_t *p = t.position_in_grid, *g = t.threadgroup_position;
    say(key, "%u %u %u %u %u %u %u", p[0], p[1], p[2], g[0], g[1], g[2], thread);
}

void defer_report() {
    if (!deferred_size) memcpy(deferred, report, deferred_size = report_size);
    report_size = 0;
}
bool has_deferred_report() { return deferred_size != 0; }
void drop_deferred_report() { deferred_size = 0; }

void end_with_report(int status) {
    tell_observed();
    if (deferred_size) memcpy(report, deferred, report_size = deferred_size);
    for (size_t done = 0; done < report_size;) {
        const ssize_t n = write(1, report + done, report_size - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    _exit(status);
}

int main() {
    struct stat status;
    if (fstat(0, &status) != 0 || (size_t)status.st_size < sizeof request) return 2;
    void* mapped = mmap(nullptr, (size_t)status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 0);
    if (mapped == MAP_FAILED) return 2;
    char* file = static_cast<char*>(mapped);
    memcpy(&request, file, sizeof request);
    List<Buffer> buffers(request.buffers);
    memcpy(buffers.data(), file + sizeof request, request.buffers * sizeof(Buffer));
    List<void*> pointers(request.buffers);
    catch_signals();
    prepare_memory(buffers.data(), file, pointers.data());
    run_dispatch(pointers.data());
    take_outputs_back(file, buffers.data());
    check_outputs_are_set(buffers.data());
    end_with_report(0);
}
