# Writes the git hash of the sources into a C++ file, which changes only when the hash does.
#   cmake -DSOURCE=<source folder> -DOUTPUT=<file> -P git_hash.cmake
execute_process(
  # No lock: somebody may be committing.
  COMMAND ${CMAKE_COMMAND} -E env GIT_OPTIONAL_LOCKS=0 git describe --always --abbrev=12 --dirty=+ --exclude=*
  WORKING_DIRECTORY ${SOURCE} OUTPUT_VARIABLE hash ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT hash)
  set(hash unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[
#include "launch/program.h"

std::string anabranch::git_hash() { return "@hash@"; }
]] @ONLY)
