// The MLX extension: turns a kernel into an operation of MLX. Like any other operation, it runs when its result is
// needed.
//
// A kernel is a C function in a library of its own (kernel.h). `run` makes arrays that are not computed yet. Each array
// knows its primitive, and MLX calls the primitive's eval_cpu to compute the array.
#include <dlfcn.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>
#include <sys/mman.h>

#include <stdexcept>

#include "kernel.h"
#include "mlx/backend/cpu/encoder.h"
#include "mlx/mlx.h"
#include "mlx/primitives.h"
#include "pool.h"
#ifdef TINY_LLM_WATCHED  // in the build that tests load
#include "checks/watch.h"
#endif

namespace mx = mlx::core;
namespace nb = nanobind;
using namespace tiny_llm;

namespace {

using Function = void (*)(const Call&);
using Output = std::pair<std::vector<int>, mx::Dtype>;

std::atomic<int> thread_count = 1;

Threads threads() {
    auto run = [](Pool::Part part, void* state, int64_t count, int64_t grain) {
        Pools::of(thread_count).run(part, state, count, grain);
    };
    return {run, thread_count};
}

DType dtype_of(mx::Dtype dtype) {
    if (dtype == mx::float32) return DType::float32;
    if (dtype == mx::bfloat16) return DType::bfloat16;
    if (dtype == mx::float16) return DType::float16;
    if (dtype == mx::uint32) return DType::uint32;
    if (dtype == mx::int32) return DType::int32;
    throw std::invalid_argument("a kernel takes float32, bfloat16, float16, uint32 and int32");
}

// An array as a kernel sees it, with shape and strides that live as long as the call.
struct ArrayView {
    std::vector<int64_t> shape, strides;
    void* data;
    DType dtype;

    explicit ArrayView(const mx::array& x)
        : shape(x.shape().begin(), x.shape().end()),
          strides(x.strides().begin(), x.strides().end()),
          data(const_cast<char*>(x.data<char>())),
          dtype(dtype_of(x.dtype())) {}

    Array array() const { return {data, shape.data(), strides.data(), int32_t(shape.size()), dtype}; }
};

std::vector<Array> arrays(const std::vector<ArrayView>& all) {
    std::vector<Array> found;
    for (auto& one : all) found.push_back(one.array());
    return found;
}

void compute(Function function, const std::vector<ArrayView>& inputs, const std::vector<ArrayView>& outputs,
             [[maybe_unused]] size_t changed, const std::vector<double>& numbers) {
    auto in = arrays(inputs), out = arrays(outputs);
#ifdef TINY_LLM_WATCHED
    Watch::call(function, in, out, changed, numbers.data(), threads());
#else
    function({in.data(), out.data(), numbers.data(), threads()});
#endif
}

// Allocates memory for an output. On Linux, asks for pages of 2 MiB for a large output, because a processor keeps the
// addresses of only a few thousand pages and must look up all others.
void allocate(mx::array& output) {
    output.set_data(mx::allocator::malloc(output.nbytes()));
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t PAGE = 2 << 20, LARGE = 4 * PAGE;
    if (output.nbytes() < LARGE) return;
    const auto from = reinterpret_cast<uintptr_t>(output.data<char>());
    const uintptr_t begin = (from + PAGE - 1) / PAGE * PAGE, end = (from + output.nbytes()) / PAGE * PAGE;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

// The first `changed` outputs begin as the first inputs: in the memory of these inputs if nothing else needs this
// memory, or as copies. For the function, these arrays are outputs only.
class Kernel : public mx::Primitive {
   public:
    Kernel(mx::Stream stream, Function function, std::vector<Output> results, std::vector<double> numbers,
           size_t changed)
        : Primitive(stream),
          function_(function),
          results_(std::move(results)),
          numbers_(std::move(numbers)),
          changed_(changed) {}

    void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
        auto& encoder = mx::cpu::get_command_encoder(stream());
        std::vector<ArrayView> in, out;
        forget_inputs(outputs, inputs);
        for (auto& x : inputs) encoder.set_input_array(x);
        for (size_t i = changed_; i < inputs.size(); i++) in.emplace_back(inputs[i]);
        for (size_t i = 0; i < outputs.size(); i++) {
            auto& x = outputs[i];
            if (i < changed_)
                begin_as(inputs[i], x, encoder);
            else
                allocate(x);
            encoder.set_output_array(x);
            out.emplace_back(x);
        }
        encoder.dispatch([in = std::move(in), out = std::move(out), numbers = numbers_, function = function_,
                          changed = changed_] { compute(function, in, out, changed, numbers); });
    }

    void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
        throw std::runtime_error("this kernel computes on the CPU: with mx.stream(mx.cpu) it runs there");
    }

    const char* name() const override { return "Kernel"; }

    bool is_equivalent(const mx::Primitive& other) const override {
        auto& kernel = static_cast<const Kernel&>(other);
        return function_ == kernel.function_ && results_ == kernel.results_ && numbers_ == kernel.numbers_ &&
               changed_ == kernel.changed_;
    }

   private:
    // Each output refers to the inputs. While outputs are computed, the reference of one output is enough. Once the
    // other references are removed, MLX sees whether anything else needs an input.
    static void forget_inputs(std::vector<mx::array>& outputs, const std::vector<mx::array>& inputs) {
        for (auto& x : outputs)
            if (&x.inputs() != &inputs && !x.is_tracer()) x.inputs().clear();
    }

    static void begin_as(const mx::array& x, mx::array& output, mx::cpu::CommandEncoder& encoder) {
        if (x.is_donatable()) return output.copy_shared_buffer(x);
        allocate(output);
        encoder.dispatch(
            [to = output.data<char>(), from = x.data<char>(), size = x.nbytes()] { std::memcpy(to, from, size); });
    }

    Function function_;
    std::vector<Output> results_;
    std::vector<double> numbers_;
    size_t changed_;
};

// Returns an array whose rows follow one another: x itself, or a copy.
mx::array contiguous(const mx::array& x, mx::Stream stream) {
    const bool is_known = x.status() != mx::array::Status::unscheduled;
    return is_known && x.flags().row_contiguous ? x : mx::contiguous(x, false, stream);
}

// changed: arrays that the function writes into. The first results are these arrays after the call.
std::vector<mx::array> run(uintptr_t function, const std::vector<mx::array>& inputs, const std::vector<Output>& results,
                           const std::vector<double>& numbers, const std::vector<mx::array>& changed) {
    auto stream = mx::default_stream(mx::Device::cpu);
    std::vector<mx::array> all;
    std::vector<mx::Shape> shapes;
    std::vector<mx::Dtype> dtypes;
    for (auto& x : changed) {
        all.push_back(contiguous(x, stream));
        shapes.push_back(x.shape());
        dtypes.push_back(x.dtype());
    }
    all.insert(all.end(), inputs.begin(), inputs.end());
    for (auto& x : all) dtype_of(x.dtype());
    for (auto& [shape, dtype] : results) {
        dtype_of(dtype);
        shapes.emplace_back(shape.begin(), shape.end());
        dtypes.push_back(dtype);
    }
    auto kernel =
        std::make_shared<Kernel>(stream, reinterpret_cast<Function>(function), results, numbers, changed.size());
    return mx::array::make_arrays(std::move(shapes), dtypes, kernel, std::move(all));
}

uintptr_t load(const std::string& library, const std::string& name) {
    void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* found = handle ? dlsym(handle, name.c_str()) : nullptr;
    if (found == nullptr) throw std::runtime_error(dlerror());
    return reinterpret_cast<uintptr_t>(found);
}

void set_threads(int count) {
    if (count < 1 || count > Pools::MOST)
        throw std::invalid_argument("expected 1 to " + std::to_string(Pools::MOST) + " threads");
    thread_count = count;
}

// A kernel that is part of the extension. With this kernel, `build-ext` checks that arrays pass from Python to the
// extension and back.
void copy(const Call& call) { std::memcpy(call.out[0].data, call.in[0].data, call.in[0].size() * sizeof(float)); }

mx::array copied(const mx::array& x) {
    return run(reinterpret_cast<uintptr_t>(&copy), {x}, {{{x.shape().begin(), x.shape().end()}, x.dtype()}}, {}, {})[0];
}

}  // namespace

NB_MODULE(_mlx_extension, module) {
    nb::module_::import_("mlx.core");
    pthread_atfork(nullptr, nullptr, Pools::forget);
    module.def("run", &run, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg() = std::vector<mx::array>());
    module.def("load", &load);
    module.def("copied", &copied);
    module.def("set_threads", &set_threads);
    module.def("threads", [] { return thread_count.load(); });
    module.def("shared", &Pools::shared);
#ifdef TINY_LLM_WATCHED
    module.def("set_race_injection", &Watch::set_race_injection);
    module.def("guard_inputs", &Watch::guard_inputs);
    module.def("take_violation", &Watch::take_violation);
#endif
}
