#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>

#include "base/error.h"
#include "base/trace.h"
#include "bindings/bindings.h"
#include "host/installation.h"

namespace nb = nanobind;

namespace ttrace::bindings {

nb::str text_of(const std::string& bytes) {
  const auto size = static_cast<Py_ssize_t>(bytes.size());
  return nb::steal<nb::str>(PyUnicode_DecodeUTF8(bytes.data(), size, "surrogateescape"));
}

namespace {

void bind_errors(nb::module_& module) {
  const nb::exception<InputError> input_error(module, "InputError", PyExc_Exception);
  input_error.doc() = "What keeps ttrace from looking, in one line: where, what, and what was expected.";
  // Replaces the translation that the line above registers: the text may hold bytes that are no UTF-8.
  nb::register_exception_translator(
      [](const std::exception_ptr& error, void* type) {
        try {
          std::rethrow_exception(error);
        } catch (const InputError& known) {
          PyErr_SetString(static_cast<PyObject*>(type), printable(known.what()).c_str());
        }
      },
      input_error.ptr());
}

}  // namespace
}  // namespace ttrace::bindings

NB_MODULE(_core, module) {
  module.doc() = "What the package ttrace is built on: its C++ part. No interface of its own.";
  ttrace::bindings::bind_errors(module);
  ttrace::bindings::bind_traces(module);
  ttrace::bindings::bind_reports(module);
  module.def(
      "set_installation", [](const std::string& directory) { ttrace::set_installation(directory); },
      nb::arg("directory"), "Says which directory holds bin/, lib/ and share/ttrace/.");
  module.attr("version") = TTRACE_VERSION;
}
