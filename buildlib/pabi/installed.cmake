# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#
# Build the provider against the installed libibverbs with our declarations of
# its private interface, and stop if they do not describe that library.

set(MIC_PABI 34)
set(PABI_DIR ${CMAKE_CURRENT_LIST_DIR})
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_library(IBVERBS_SHARED NAMES libibverbs.so REQUIRED)
# Only the archive shows the place of each operation. Not every distribution has it
# (RPMs of rdma-core are made without); then those that the library shows have to do.
find_library(IBVERBS_ARCHIVE NAMES libibverbs.a)
set(PABI_VERIFY ${Python3_EXECUTABLE} ${PABI_DIR}/verify.py
  --library ${IBVERBS_SHARED} --header ${PABI_DIR}/pabi.h)
if(IBVERBS_ARCHIVE)
  list(APPEND PABI_VERIFY --archive ${IBVERBS_ARCHIVE})
else()
  set(IBVERBS_ARCHIVE "")
  message(STATUS "There is no libibverbs.a: the order of those operations that "
    "libibverbs.so does not show is not checked")
endif()

execute_process(COMMAND ${PABI_VERIFY} --release RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "libibverbs is not the release libmic is written for")
endif()

target_include_directories(mic_verbs_private INTERFACE ${PABI_DIR})
target_link_libraries(mic_verbs_private INTERFACE ${IBVERBS_SHARED})

# The layout as the compiler sees it, and as the library shows when it runs.
add_executable(pabi-probe ${PABI_DIR}/probe.c)
target_link_libraries(pabi-probe PRIVATE mic_verbs_private)
set_target_properties(pabi-probe PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_custom_command(OUTPUT pabi.verified
  COMMAND ${PABI_VERIFY} --probe $<TARGET_FILE:pabi-probe>
  COMMAND ${CMAKE_COMMAND} -E touch pabi.verified
  DEPENDS pabi-probe ${PABI_DIR}/verify.py ${IBVERBS_SHARED}
    ${IBVERBS_ARCHIVE}
  COMMENT "Checking buildlib/pabi against the installed libibverbs" VERBATIM)
add_custom_target(pabi_verified DEPENDS pabi.verified)
