#include "inspect/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "annotate/close_names.h"
#include "base/annotation.h"
#include "base/describe.h"
#include "base/error.h"

namespace ttrace {
namespace {

bool is_named(const TensorChoice& choice, const std::string& name) {
  return choice.pattern.empty() || matches(choice.pattern, name);
}

bool is_chosen(const TensorChoice& choice, const TensorId& id) {
  return is_named(choice, id.name) && (!choice.kind || id.kind == *choice.kind) &&
         (!choice.iteration || id.iteration == *choice.iteration) &&
         (!choice.microbatch || id.microbatch == *choice.microbatch);
}

[[noreturn]] void refuse(const Alignment& alignment, const TensorChoice& choice) {
  std::set<std::string> names, recorded;
  for (const auto& [id, tensor] : alignment.tensors) {
    names.insert(id.name);
    if (is_named(choice, id.name)) recorded.insert(to_string(id));
  }
  if (!recorded.empty()) {
    const std::vector<std::string> list(recorded.begin(), recorded.end());
    throw InputError(fmt::format("'{}': not of that kind, iteration and micro-batch; expected one of {}",
                                 choice.pattern, comma_list(list)));
  }
  for (const Finding& finding : alignment.findings) {
    if (is_chosen(choice, finding.id)) {
      throw InputError(
          fmt::format("{}: {}; expected shards that make up a tensor", to_string(finding.id), finding.message));
    }
  }
  throw no_such_name(choice.pattern, names);
}

}  // namespace

std::vector<const LogicalTensor*> choose_tensors(const Alignment& alignment, const TensorChoice& choice) {
  std::vector<const LogicalTensor*> chosen;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (is_chosen(choice, id)) chosen.push_back(&tensor);
  }
  if (chosen.empty()) refuse(alignment, choice);
  std::stable_sort(chosen.begin(), chosen.end(), [](const LogicalTensor* a, const LogicalTensor* b) {
    return std::pair(a->id.iteration, a->order) < std::pair(b->id.iteration, b->order);
  });
  return chosen;
}

}  // namespace ttrace
