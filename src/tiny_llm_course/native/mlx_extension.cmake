# How mlx_extension.py builds tiny_llm_native/mlx_extension.cpp, in a folder of its own. KERNELS: where the source is.
cmake_minimum_required(VERSION 3.25)
project(tiny_llm_mlx_extension LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_BUILD_TYPE Release)

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(nanobind CONFIG REQUIRED)
find_package(MLX CONFIG REQUIRED)

# What programs load, and what tests load. They share nanobind.
foreach(name _mlx_extension _mlx_extension_watched)
  nanobind_add_module(${name} NB_STATIC STABLE_ABI NB_DOMAIN mlx ${KERNELS}/mlx_extension.cpp)
  target_include_directories(${name} PRIVATE ${KERNELS})
  target_link_libraries(${name} PRIVATE mlx)
endforeach()
target_compile_definitions(_mlx_extension_watched PRIVATE TINY_LLM_WATCHED)
