// Holds what the recorders of a trace say that they could not record, or were told to leave out, by canonical names.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace ttrace {

// The statements of all ranks: `NotSeen` in base/trace.h is one of a rank.
class NotSeenTensors {
 public:
  // The name is that of the statement's tensor or module in the whole model.
  void add_tensor(const NotSeen& statement, std::string_view canonical_name);
  void add_module(const NotSeen& statement, std::string_view canonical_name);
  void add_everything(const NotSeen& statement);
  // Takes over what `other` says of its design and of everything; what it says of names is left.
  void add_design_of(const NotSeenTensors& other);

  struct Reason {
    std::string text;
    bool by_design = false;
    friend bool operator==(const Reason&, const Reason&) = default;
  };
  // Says why a tensor, which has a canonical identity, was not recorded; null where no statement covers it. What covers
  // everything is not asked: a tensor that is there in part is an omission even in a trace that holds less by design.
  const Reason* reason_of(const TensorId& id) const;
  // True where whatever the trace lacks is left out by design.
  bool covers_everything() const { return everything_; }
  // Says why the trace holds less by design, each reason once; empty where it does not.
  const std::set<std::string>& reasons_by_design() const { return by_design_; }

  struct Statement {
    Reason reason;
    std::string tensor;  // empty: all of the module
    std::set<Kind> kinds;
    std::set<std::int32_t> iterations;
    friend bool operator==(const Statement&, const Statement&) = default;
  };
  // By the path of the module, or of what has the tensor's name.
  const std::map<std::string, std::vector<Statement>, std::less<>>& statements() const { return by_path_; }

 private:
  void add(std::string_view path, Statement statement);

  std::map<std::string, std::vector<Statement>, std::less<>> by_path_;
  bool everything_ = false;
  std::set<std::string> by_design_;
};

}  // namespace ttrace
