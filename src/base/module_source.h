// Says where a program's modules are in its source.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace ttrace {

struct CodeLine {
  std::string file;       // from the top of the program's repository where it is there, else absolute
  std::int32_t line = 0;  // from 1
  friend bool operator==(const CodeLine&, const CodeLine&) = default;
};

// `src/model.py:106`; printable.
std::string text_of(const CodeLine& line);

// True where the file is one of the program's repository, not of a library that is installed elsewhere.
bool is_in_repository(const CodeLine& line);

// Says where a module is computed, and where the program calls it. Neither is in PyTorch itself. And by which variable
// the program holds the model that it is of, where names do not tell one model from the other.
struct ModuleSource {
  std::optional<CodeLine> forward, call;
  std::optional<std::string> variable = {};
  friend bool operator==(const ModuleSource&, const ModuleSource&) = default;
};

// `in src/model.py:106, called at src/model.py:120, of the program's 'critic'`; printable, and empty where nothing is
// known.
std::string text_of(const ModuleSource& source);

// The line to show where there is room for one: `forward` if it is in the repository, else `call` if that is, else
// whichever is known.
const CodeLine* best_line(const ModuleSource& source);

// One rank's statement of its modules. Its provenance holds it as
//
//   "sources": {"files": ["src/model.py", "/usr/lib/python3/dist-packages/library/model.py"],
//               "forwards": {"model.Mlp": [0, 106]},
//               "calls": {"decoder.layers.#.mlp": [0, 120], "head": [1, 17]},
//               "variables": {"": "actor", "model1": "critic", "Mlp": "target"}}
//
// where a line is the place of its file in the list, and its number. Forwards are named by the module's class, as
// entries name it, calls by the module's recorded name, without numbers
// (base/tensor_name.h) where all such names have the same line. Variables are named by what the names of the model's
// tensors begin with, nothing for the first model. What has several lines is absent, and so is all of it where the
// document would be too long.
struct ModuleSources {
  std::map<std::string, CodeLine> forwards, calls;
  std::map<std::string, std::string> variables = {};

  ModuleSource of(const std::string& module, const std::string& module_class) const;

  // By which variable the program holds the model of a tensor or module of this name, which is the first one's unless the
  // name begins with another's or `is_of_other`; nothing where it has one model, and nothing beside it.
  std::optional<std::string> variable_of(std::string_view name, bool is_of_other = false) const;
};

}  // namespace ttrace
