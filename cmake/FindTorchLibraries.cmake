# Finds LibTorch inside an installed `torch` Python package and makes the target ramify::torch of it.
#
# Only libtorch_cpu and libc10 are linked, by path: so a CUDA build of torch needs no CUDA toolkit here, and its
# libraries are loaded by whoever uses them. Set TORCH_PACKAGE_DIR to the package (the folder with lib/libtorch_cpu.so)
# to skip the look-up through Python.
if(TARGET ramify::torch)
  set(TorchLibraries_FOUND TRUE)
  return()
endif()
if(NOT TORCH_PACKAGE_DIR)
  set(Python3_FIND_VIRTUALENV FIRST)
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(Python3_EXECUTABLE)
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -c
              "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
      OUTPUT_VARIABLE torch_package_found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(TORCH_PACKAGE_DIR "${torch_package_found}" CACHE PATH "The installed torch package" FORCE)
  endif()
endif()

set(TorchLibraries_VERSION "")
if(EXISTS "${TORCH_PACKAGE_DIR}/version.py")
  file(STRINGS "${TORCH_PACKAGE_DIR}/version.py" torch_version_line REGEX "^__version__")
  string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" TorchLibraries_VERSION "${torch_version_line}")
endif()
find_library(TORCH_CPU_LIBRARY torch_cpu PATHS "${TORCH_PACKAGE_DIR}/lib" NO_DEFAULT_PATH)
find_library(TORCH_C10_LIBRARY c10 PATHS "${TORCH_PACKAGE_DIR}/lib" NO_DEFAULT_PATH)
find_library(TORCH_CUDA_LIBRARY torch_cuda PATHS "${TORCH_PACKAGE_DIR}/lib" NO_DEFAULT_PATH)
mark_as_advanced(TORCH_CPU_LIBRARY TORCH_C10_LIBRARY TORCH_CUDA_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchLibraries
  REQUIRED_VARS TORCH_CPU_LIBRARY TORCH_C10_LIBRARY VERSION_VAR TorchLibraries_VERSION
  REASON_FAILURE_MESSAGE "no torch package found: pip install torch==2.13.0, or set TORCH_PACKAGE_DIR")
if(TorchLibraries_FOUND AND TorchLibraries_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "torch ${TorchLibraries_VERSION} is too old; ramify needs 2.11 or newer")
endif()
if(RAMIFY_CUDA AND NOT TORCH_CUDA_LIBRARY)
  message(FATAL_ERROR "RAMIFY_CUDA is on, but the torch in ${TORCH_PACKAGE_DIR} has no CUDA")
endif()

if(TorchLibraries_FOUND)
  add_library(ramify::torch INTERFACE IMPORTED)
  target_include_directories(ramify::torch SYSTEM INTERFACE
    "${TORCH_PACKAGE_DIR}/include" "${TORCH_PACKAGE_DIR}/include/torch/csrc/api/include")
  target_link_libraries(ramify::torch INTERFACE "${TORCH_CPU_LIBRARY}" "${TORCH_C10_LIBRARY}")
endif()
