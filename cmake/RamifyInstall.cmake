# What `cmake --install` gives: for C++, headers, libraries and find_package(ramify); for Python (RAMIFY_PYTHON_LAYOUT),
# the libraries inside the package.
get_property(layers GLOBAL PROPERTY RAMIFY_LAYERS)

if(RAMIFY_PYTHON_LAYOUT)
  # site-packages/ramify/lib, next to site-packages/torch/lib
  set_target_properties(${layers} PROPERTIES INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
  install(TARGETS ${layers} LIBRARY DESTINATION ramify/lib)
  if(RAMIFY_CLI AND RAMIFY_TORCH)
    set_target_properties(ramify_command_line ramify_cli_torch PROPERTIES
      INSTALL_RPATH "$ORIGIN;$ORIGIN/../../torch/lib")
    install(TARGETS ramify_command_line ramify_cli_torch LIBRARY DESTINATION ramify/lib)
  endif()
  return()
endif()

set_target_properties(${layers} PROPERTIES INSTALL_RPATH "$ORIGIN")
if(RAMIFY_TORCH)
  set_target_properties(ramify_ops ramify_nn ramify_models ramify_train ramify_compare PROPERTIES INSTALL_RPATH "$ORIGIN;${torch_package}/lib")
endif()
install(TARGETS ${layers} EXPORT ramifyTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(RAMIFY_CLI)
  set_target_properties(ramify_cli PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(ramify_command_line PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS ramify_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(TARGETS ramify_command_line LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(RAMIFY_TORCH)
    set_target_properties(ramify_cli_torch PROPERTIES INSTALL_RPATH "$ORIGIN;${torch_package}/lib")
    install(TARGETS ramify_cli_torch LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endif()
install(DIRECTORY include/ramify DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES "${PROJECT_BINARY_DIR}/include/ramify/version.h" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ramify)

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ramify)
list(TRANSFORM layers REPLACE "^ramify_" "" OUTPUT_VARIABLE RAMIFY_LAYER_NAMES)
configure_package_config_file(cmake/ramifyConfig.cmake.in "${PROJECT_BINARY_DIR}/ramifyConfig.cmake"
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/ramifyConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(EXPORT ramifyTargets NAMESPACE ramify:: DESTINATION ${package_dir})
install(FILES "${PROJECT_BINARY_DIR}/ramifyConfig.cmake" "${PROJECT_BINARY_DIR}/ramifyConfigVersion.cmake"
  cmake/FindTorchLibraries.cmake DESTINATION ${package_dir})
