// Runs calls of kernels that tests made, which sanitize.py recorded: `sanitize FILE`. Each array gets memory of its
// exact size, so that the sanitizers see every step outside; each call is made on one thread and on four.
#include <dlfcn.h>

#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "kernel.h"
#include "pool.h"

using namespace tiny_llm;

namespace {

int thread_count = 1;

Threads threads() {
    auto run = [](Pool::Part part, void* state, int64_t count, int64_t grain) {
        Pools::of(thread_count).run(part, state, count, grain);
    };
    return {run, thread_count};
}

struct Held {
    std::vector<int64_t> shape, strides;
    std::unique_ptr<char[]> bytes;
    int dtype = 0;

    Array array() { return {bytes.get(), shape.data(), strides.data(), int32_t(shape.size()), DType(dtype)}; }
};

// A line `dtype ndim shape... bytes`; of an input with `strides...` before the bytes, which stand behind it.
Held read_array(std::istream& file, bool is_input) {
    Held held;
    size_t ndim, size;
    file >> held.dtype >> ndim;
    held.shape.resize(ndim), held.strides.resize(ndim);
    for (auto& length : held.shape) file >> length;
    int64_t stride = 1;
    for (size_t i = ndim; i-- > 0; stride *= held.shape[i]) held.strides[i] = stride;
    if (is_input)
        for (auto& given : held.strides) file >> given;
    file >> size;
    file.get();
    held.bytes.reset(new char[size]);
    if (is_input) file.read(held.bytes.get(), size);
    return held;
}

std::vector<Array> arrays(std::vector<Held>& all) {
    std::vector<Array> found;
    for (auto& one : all) found.push_back(one.array());
    return found;
}

}  // namespace

int main(int, char** arguments) {
    std::ifstream file(arguments[1], std::ios::binary);
    std::string name;
    size_t inputs, outputs, numbers, calls = 0;
    while (file >> name >> inputs >> outputs >> numbers) {
        std::vector<double> values(numbers);
        for (auto& value : values) file >> value;
        std::vector<Held> in, out;
        for (size_t i = 0; i < inputs; i++) in.push_back(read_array(file, true));
        for (size_t i = 0; i < outputs; i++) out.push_back(read_array(file, false));
        auto function = reinterpret_cast<void (*)(const Call&)>(dlsym(RTLD_DEFAULT, name.c_str()));
        if (function == nullptr) return std::cerr << "no kernel " << name << "\n", 1;
        auto in_arrays = arrays(in), out_arrays = arrays(out);
        for (int count : {1, 4}) {
            thread_count = count;
            function({in_arrays.data(), out_arrays.data(), values.data(), threads()});
        }
        calls++;
    }
    std::cout << calls << " calls, on one thread and on four\n";
}
