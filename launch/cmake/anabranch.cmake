# The flags every target of ours takes, and the two functions that make targets.

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  add_link_options(-fuse-ld=mold)
endif()

add_library(ab_flags INTERFACE)
target_compile_options(
  ab_flags
  INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Wold-style-cast>
    # Functions of the language's own library and Bf16's are constexpr: kernels call them too.
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;--expt-relaxed-constexpr;-Werror=all-warnings>)
# A float kernel neither reads errno nor traps; NaN and Inf keep their meaning.
target_compile_options(ab_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-math-errno;-fno-trapping-math>)

if(AB_SANITIZE)
  string(REPLACE ";" "," ab_sanitizers "${AB_SANITIZE}")
  # GCC takes values that a sanitizer checks for uninitialised ones, in the standard library too.
  add_compile_options(-fsanitize=${ab_sanitizers} -fno-omit-frame-pointer
                      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${ab_sanitizers})
  if("undefined" IN_LIST AB_SANITIZE)
    add_compile_options(-fno-sanitize-recover=all)
  endif()
  if(AB_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
  endif()
  if("address" IN_LIST AB_SANITIZE)
    add_library(ab_keep_plugins STATIC ${PROJECT_SOURCE_DIR}/tests/sanitizers/keep_plugins.c)
    target_link_options(ab_keep_plugins INTERFACE -Wl,--undefined=dlclose
                        -Wl,--export-dynamic-symbol=dlclose)
    target_link_libraries(ab_flags INTERFACE ab_keep_plugins)
  endif()
  # Function clones are picked by a resolver that runs before a sanitizer is ready.
  target_compile_definitions(ab_flags INTERFACE AB_WITHOUT_CLONES)
endif()

# ab_library(<folder> SOURCES ... HEADERS ... DEPENDS ... PRIVATE_DEPENDS ...)
# One static library per top folder; DEPENDS are visible to whoever links it.
function(ab_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;HEADERS;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(ab_${name} STATIC ${arg_SOURCES})
  target_sources(ab_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES
                                   ${arg_HEADERS})
  target_include_directories(ab_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(ab_${name} PUBLIC ${arg_DEPENDS} PRIVATE ab_flags ${arg_PRIVATE_DEPENDS})
  set_target_properties(ab_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

# ab_test(<folder> SOURCES ... DEPENDS ... [LABELS ...]): one test program per top folder. Tests run
# beside each other, each with a thread for every core: waiting threads must not spin.
function(ab_test name)
  cmake_parse_arguments(arg "" "LABELS" "SOURCES;DEPENDS" ${ARGN})
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name}_tests ${arg_SOURCES})
  target_include_directories(${name}_tests PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name}_tests PRIVATE ${arg_DEPENDS} ab_flags GTest::gmock GTest::gtest_main)
  gtest_discover_tests(${name}_tests DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS ${arg_LABELS} TIMEOUT 300
                                  ENVIRONMENT OMP_WAIT_POLICY=passive)
endfunction()
