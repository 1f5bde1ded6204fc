# How a layer's library is made, so that each CMakeLists.txt only says what is in it and what it may use.

# ramify_layer(<name> SOURCES ... LINKS ... PRIVATE_LINKS ...): the shared library ramify_<name>, known to users as ramify::<name>.
function(ramify_layer name)
  cmake_parse_arguments(LAYER "" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(target ramify_${name})
  add_library(${target} SHARED ${LAYER_SOURCES})
  add_library(ramify::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_link_libraries(${target} PUBLIC ${LAYER_LINKS} PRIVATE ${LAYER_PRIVATE_LINKS})
  ramify_warnings(${target})
  set_property(GLOBAL APPEND PROPERTY RAMIFY_LAYERS ${target})
endfunction()

function(ramify_warnings target)
  set(options -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
    -Wno-missing-field-initializers  # fields that are left out have the defaults that their struct gives them
    $<$<BOOL:${RAMIFY_WERROR}>:-Werror>
    # False alarms of g++ 12 and 13 at -O3, inside std::string and std::vector<bool>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-array-bounds;-Wno-stringop-overflow>)
  target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${options}>")
endfunction()
