// What the recorders of a trace say that they could not record, by canonical names.
#pragma once

#include <cstdint>
#include <map>
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

  // Says why a tensor, which has a canonical identity, was not recorded; null where no statement covers it.
  const std::string* reason_of(const TensorId& id) const;

 private:
  struct Statement {
    std::string reason, tensor;  // no tensor: all of the module
    std::set<Kind> kinds;
    std::set<std::int32_t> iterations;
    friend bool operator==(const Statement&, const Statement&) = default;
  };
  void add(std::string_view path, Statement statement);

  std::map<std::string, std::vector<Statement>, std::less<>> by_path_;
};

}  // namespace ttrace
