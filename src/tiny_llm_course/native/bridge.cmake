# How bridge.py builds tiny_llm_native/bridge.cpp, in a folder of its own. KERNELS: where the source is.
cmake_minimum_required(VERSION 3.25)
project(tiny_llm_bridge LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_BUILD_TYPE Release)

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(nanobind CONFIG REQUIRED)
find_package(MLX CONFIG REQUIRED)

nanobind_add_module(_bridge NB_STATIC STABLE_ABI NB_DOMAIN mlx ${KERNELS}/bridge.cpp)
target_include_directories(_bridge PRIVATE ${KERNELS})
target_link_libraries(_bridge PRIVATE mlx)
