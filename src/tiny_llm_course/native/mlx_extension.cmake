# How mlx_extension.py builds tiny_llm_native/mlx_extension.cpp, in a folder of its own. KERNELS: where the source is.
cmake_minimum_required(VERSION 3.25)
project(tiny_llm_mlx_extension LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_BUILD_TYPE Release)

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(nanobind CONFIG REQUIRED)
find_package(MLX CONFIG REQUIRED)

nanobind_add_module(_mlx_extension NB_STATIC STABLE_ABI NB_DOMAIN mlx ${KERNELS}/mlx_extension.cpp)
target_include_directories(_mlx_extension PRIVATE ${KERNELS})
target_link_libraries(_mlx_extension PRIVATE mlx)
