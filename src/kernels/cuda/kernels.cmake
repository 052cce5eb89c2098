# The kernels for CUDA devices. nvcc compiles three files; everything else is plain C++, so that CMake
# needs no CUDA language and the flags of the other compilers stay out of nvcc's way.
if(LOCKSTEP_CUDA_FOUND)
  # Contraction off, IEEE division and square root, subnormals kept: the law (docs/numerics.md).
  set(flags -std=c++20 -O3 --expt-relaxed-constexpr --fmad=false --ftz=false --prec-div=true --prec-sqrt=true
            -Xcompiler=-Wall,-Wextra,-ffp-contract=off -I${PROJECT_SOURCE_DIR}/src)
  # Machine code for each "90", PTX that later devices compile at start for each "80-ptx".
  set(code)
  foreach(architecture IN LISTS LOCKSTEP_CUDA_ARCHITECTURES)
    if(architecture MATCHES "^([0-9]+a?)-ptx$")
      list(APPEND code -gencode=arch=compute_${CMAKE_MATCH_1},code=compute_${CMAKE_MATCH_1})
    else()
      list(APPEND code -gencode=arch=compute_${architecture},code=sm_${architecture})
    endif()
  endforeach()
  set(objects)
  foreach(source kernels products_q32 products_q256)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.cu.o)
    list(APPEND objects ${object})
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${LOCKSTEP_NVCC} -ccbin ${CMAKE_CXX_COMPILER} ${flags} ${code} -MD -MF
              ${object}.d -MT ${object} -c ${CMAKE_CURRENT_LIST_DIR}/${source}.cu -o ${object}
      DEPENDS ${CMAKE_CURRENT_LIST_DIR}/${source}.cu
      DEPFILE ${object}.d
      COMMENT "Building CUDA object ${source}.cu.o" VERBATIM)
  endforeach()
  add_custom_target(lockstep_cuda_objects DEPENDS ${objects})
  set(LOCKSTEP_CUDA_OBJECTS ${objects} CACHE INTERNAL "the compiled kernels")
  target_sources(lockstep_kernels PRIVATE cuda/device_cuda.cc ${objects})
  set_source_files_properties(${objects}
                              PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  target_include_directories(lockstep_kernels SYSTEM PRIVATE ${LOCKSTEP_CUDA_HOME}/include)
  target_link_libraries(lockstep_kernels PUBLIC ${LOCKSTEP_CUDART} ${CMAKE_DL_LIBS} rt)
else()
  target_sources(lockstep_kernels PRIVATE cuda/no_cuda.cc)
endif()
