#include "merge/terms.h"

namespace ttrace {

std::map<ParameterOfIteration, std::vector<const LogicalTensor*>> terms_of_main_gradients(const Alignment& alignment) {
  std::map<ParameterOfIteration, std::vector<const LogicalTensor*>> terms;
  for (const auto& [id, tensor] : alignment.tensors) {
    if (id.kind == Kind::kParamGrad && id.microbatch != kNoMicrobatch)
      terms[{id.iteration, id.name}].push_back(&tensor);
  }
  return terms;
}

}  // namespace ttrace
