# Finds LibTorch inside an installed `torch` Python package and makes the target ramify::torch of it.
#
# Only libtorch_cpu and libc10 are linked, by path: so a CUDA build of torch needs no CUDA toolkit here, and its
# libraries are loaded by whoever uses them. Where there is a toolkit all the same, ramify::torch_cuda has what tells
# torch's streams. Set TORCH_PACKAGE_DIR to the package (the folder with lib/libtorch_cpu.so)
# to skip the look-up through Python. What is found is not cached: torch may be another one at the next configuration.
if(TARGET ramify::torch)
  set(TorchLibraries_FOUND TRUE)
  return()
endif()
set(torch_package "${TORCH_PACKAGE_DIR}")
if(NOT torch_package)
  set(Python3_FIND_VIRTUALENV FIRST)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_EXECUTABLE)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c
              "from importlib.util import find_spec; print(find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE torch_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
endif()

set(TorchLibraries_VERSION "")
if(EXISTS "${torch_package}/version.py")
  file(STRINGS "${torch_package}/version.py" torch_version_line REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchLibraries_VERSION "${torch_version_line}")
endif()
foreach(library IN ITEMS torch_cpu c10 torch_cuda c10_cuda)
  unset(library_${library})
  find_library(library_${library} ${library} PATHS "${torch_package}/lib" NO_DEFAULT_PATH NO_CACHE)
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchLibraries
  REQUIRED_VARS library_torch_cpu library_c10 VERSION_VAR TorchLibraries_VERSION
  REASON_FAILURE_MESSAGE "${Python3_EXECUTABLE} has no torch: pip install torch, or set TORCH_PACKAGE_DIR")
if(TorchLibraries_FOUND AND TorchLibraries_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${TorchLibraries_VERSION} is too old; ramify needs 2.11 or newer")
endif()
if(RAMIFY_CUDA AND NOT library_torch_cuda)
  message(FATAL_ERROR "RAMIFY_CUDA is on, but the torch in ${torch_package} has no CUDA")
endif()

if(TorchLibraries_FOUND)
  add_library(ramify::torch INTERFACE IMPORTED)
  target_include_directories(ramify::torch SYSTEM INTERFACE
    "${torch_package}/include" "${torch_package}/include/torch/csrc/api/include")
  target_link_libraries(ramify::torch INTERFACE "${library_torch_cpu}" "${library_c10}")

  set(RAMIFY_HAS_TORCH_CUDA OFF)
  if(library_c10_cuda AND RAMIFY_CUDA_COMPILER)
    find_package(CUDAToolkit REQUIRED)
    set(RAMIFY_HAS_TORCH_CUDA ON)
    add_library(ramify::torch_cuda INTERFACE IMPORTED)
    target_include_directories(ramify::torch_cuda SYSTEM INTERFACE ${CUDAToolkit_INCLUDE_DIRS})
    target_link_libraries(ramify::torch_cuda INTERFACE "${library_c10_cuda}")
  endif()

  # at::parallel_for is a template over OpenMP: a file that calls it is compiled with it, and must use the very runtime
  # that torch loads, or there would be two pools of threads. -fopenmp is not given to the linker: it would add its own.
  add_library(ramify::torch_threads INTERFACE IMPORTED)
  target_compile_options(ramify::torch_threads INTERFACE -fopenmp)
  file(GLOB torch_openmp "${torch_package}/lib/libgomp*.so*" "${torch_package}/../torch.libs/libgomp*.so*")
  if(torch_openmp)
    list(GET torch_openmp 0 torch_openmp)
  else()
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    set(torch_openmp ${OpenMP_CXX_LIBRARIES})
  endif()
  target_link_libraries(ramify::torch_threads INTERFACE ramify::torch ${torch_openmp})
endif()
