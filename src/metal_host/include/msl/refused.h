// Names that Metal lacks or metal_host does not support. A kernel that uses one gets an error (diagnostics.py).
#pragma once
// clang-format off
#pragma GCC poison double dynamic_cast typeid throw goto thread_local asm __asm__
#pragma GCC poison function_constant printf
#pragma GCC poison texture1d texture1d_array texture2d texture2d_array texture3d texturecube texture_buffer depth2d
#pragma GCC poison float2x2 float2x3 float2x4 float3x2 float3x3 float3x4 float4x2 float4x3 float4x4
#pragma GCC poison half2x2 half2x3 half2x4 half3x2 half3x3 half3x4 half4x2 half4x3 half4x4
#pragma GCC poison visible_function_table intersection_function_table acceleration_structure imageblock indirect_command_buffer
#pragma GCC poison os_log tensor_handle cooperative_tensor atomic_thread_fence simdgroup_async_copy
