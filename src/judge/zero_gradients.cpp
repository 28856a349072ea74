#include "judge/zero_gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/describe.h"
#include "base/tensor_name.h"

namespace ttrace {
namespace {

// What begins at zero holds back the gradients behind it in the first iteration; two such, one behind the other, or a
// learning rate that begins at zero, in the second.
constexpr std::size_t kByDesign = 3;

struct Family {
  bool all_zero = true;
  std::set<std::int32_t> iterations;
};

}  // namespace

std::optional<ZeroGradients> find_zero_gradients(const std::map<TensorId, std::string>& doubts,
                                                 std::vector<std::string>& notes) {
  std::map<std::string, Family> families;
  for (const auto& [id, doubt] : doubts) {
    if (id.kind != Kind::kParamGrad && id.kind != Kind::kMainGrad) continue;
    Family& family = families[printable(without_numbers(id.name.get()))];
    family.all_zero &= doubt == name_of(Reason::kAllZero);
    family.iterations.insert(id.iteration);
  }
  ZeroGradients found;
  std::vector<std::string> by_design;
  for (const auto& [name, family] : families) {
    if (!family.all_zero) continue;
    if (family.iterations.size() >= kByDesign) {
      by_design.push_back(name);
      continue;
    }
    if (found.families.empty()) found.first = found.last = *family.iterations.begin();
    found.families.push_back(name);
    found.first = std::min(found.first, *family.iterations.begin());
    found.last = std::max(found.last, *family.iterations.rbegin());
  }
  if (!by_design.empty()) {
    notes.push_back(
        fmt::format("the gradients of {} are zero on both sides in all iterations that were recorded: "
                    "nothing is proved of them",
                    comma_list(by_design)));
  }
  return found.families.empty() ? std::nullopt : std::optional(std::move(found));
}

}  // namespace ttrace
