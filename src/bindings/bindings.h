// The extension module `ttrace._core`, on which the Python package is built (the folder ttrace beside this file). It
// takes and gives plain values; what a user of the package sees is written in Python. Python's lock is released while
// C++ works, and InputError is an exception of Python's with the same line.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "base/annotation.h"

namespace ttrace::bindings {

void bind_traces(nanobind::module_& module);   // trace.cpp
void bind_reports(nanobind::module_& module);  // report.cpp

// `work()` without Python's lock. It must not touch a Python object, nor its result hold one.
template <class Work>
auto without_lock(Work work) {
  const nanobind::gil_scoped_release release;
  return work();
}

// Text from a trace, which may hold bytes that are no UTF-8: Python's surrogates stand for them.
nanobind::str text_of(const std::string& bytes);

}  // namespace ttrace::bindings
