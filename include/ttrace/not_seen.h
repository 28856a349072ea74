// What the recorders of a trace say that they could not record, by canonical names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ttrace/trace.h"

namespace ttrace {

// The statements of all ranks: `NotSeen` in ttrace/trace.h is one of a rank.
class NotSeenTensors {
 public:
  // The name is that of the statement's tensor or module in the whole model.
  void add_tensor(const NotSeen& statement, std::string_view canonical_name);
  void add_module(const NotSeen& statement, std::string_view canonical_name);
  void add_everything(const NotSeen& statement);

  // Says why a tensor, which has a canonical identity, was not recorded; null where no statement covers it. What covers
  // everything is not asked: a tensor that is there in part is an omission even in a trace that holds less by design.
  const std::string* reason_of(const TensorId& id) const;
  // Says why the trace holds less by design; null where it does not.
  const std::string* reason_of_all() const { return everything_ ? &*everything_ : nullptr; }

 private:
  struct Statement {
    std::string reason, tensor;  // no tensor: all of the module
    std::set<Kind> kinds;
    std::set<std::int32_t> iterations;
    friend bool operator==(const Statement&, const Statement&) = default;
  };
  void add(std::string_view path, Statement statement);

  std::map<std::string, std::vector<Statement>, std::less<>> by_path_;
  std::optional<std::string> everything_;
};

}  // namespace ttrace
