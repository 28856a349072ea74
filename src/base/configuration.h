// Says how a program has configured its modules.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ttrace {

// The class of a module, and the plain attributes that its constructor left, as Python writes their values:
// {"eps": "1e-05", "padding": "(1, 1)", "config.rope_theta": "10000.0"}.
struct ModuleConfiguration {
  std::string module_class;
  std::map<std::string, std::string> attributes;
};

// One rank's statement of its modules. Its provenance holds it as
//
//   "configurations": {"objects": [{"rope_theta": "10000.0"}],
//                      "values": [{"class": "model.Attention", "attributes": {"scale": "0.125"},
//                                  "objects": {"config": 0}}],
//                      "modules": [{"decoder.layers.#.attention": 0}],
//                      "without_grad": {"Sequential.2": 0}}
//
// with a list item in `modules` for each chunk: the place, in `values`, of what is known of a module; and of models that
// the program calls without gradients alone, by their class. Objects that several modules have stand once. Modules go by
// their recorded names, without numbers (base/tensor_name.h) where all such names are configured alike. Attributes that
// the run has changed are absent, as are tensors, and all of it where the document would be too long.
struct ModuleConfigurations {
  std::vector<std::map<std::string, std::shared_ptr<const ModuleConfiguration>>> chunks;
  std::map<std::string, std::shared_ptr<const ModuleConfiguration>> without_grad;

  const ModuleConfiguration* of(std::int32_t chunk, const std::string& module) const;  // null: nothing is known
};

// An attribute of a module that the candidate has configured otherwise than the reference.
struct OtherAttribute {
  std::string module;                // the first of those that differ so; canonical
  std::int64_t modules = 1;          // how many do
  std::string attribute;             // `eps`, or `config.rope_theta`
  std::string reference, candidate;  // as Python writes them
  std::vector<std::int32_t> ranks;   // of the candidate, where some only have it so
};

// `eps 1e-06, reference 1e-05`; printable.
std::string text_of(const OtherAttribute& other);

// Something that surrounds a run's computation: a version, a variable of the environment, a setting of PyTorch.
struct OtherSurrounding {
  std::string what;                  // `torch`, `float32 matmul precision`
  std::string reference, candidate;  // empty: not there
};

// `torch 2.13.0, reference 2.12.0`; printable.
std::string text_of(const OtherSurrounding& other);

}  // namespace ttrace
