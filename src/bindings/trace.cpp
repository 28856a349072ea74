// Traces and their logical tensors.
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "align/aligned_trace.h"
#include "base/error.h"
#include "bindings/bindings.h"
#include "inspect/selection.h"
#include "merge/elements.h"
#include "merge/region.h"
#include "report/render.h"
#include "workflow/annotations.h"
#include "workflow/saved.h"

namespace nb = nanobind;

namespace ttrace::bindings {
namespace {

// A trace that Python holds. Tensors of it keep it alive: their pieces point into its files.
class OpenTrace {
 public:
  OpenTrace(const std::string& directory, const std::string& python, const AnnotationSource& annotations,
            std::shared_ptr<const OpenTrace> reference)
      : reference_(std::move(reference)),
        aligned_(align_read(read_run_as_it_is(directory, {python}), annotations,
                            reference_ ? layout_of(reference_->alignment()) : ModelLayout{})) {}

  const Trace& trace() const { return *aligned_.trace; }
  const Alignment& alignment() const { return aligned_.alignment; }

 private:
  static AlignedTrace align_read(Trace trace, const AnnotationSource& source, const ModelLayout& layout) {
    const Annotations annotations = load_annotations(source, trace);
    return align_trace(std::move(trace), annotations, layout);
  }

  std::shared_ptr<const OpenTrace> reference_;  // of whose alignment the own one may hold parts
  AlignedTrace aligned_;
};

// A logical tensor, or a box of one.
struct OpenTensor {
  std::shared_ptr<const OpenTrace> trace;
  LogicalTensor tensor;  // without `rows`
  std::optional<std::vector<std::int64_t>> rows;
};

OpenTensor open_tensor(const std::shared_ptr<const OpenTrace>& trace, const LogicalTensor& tensor) {
  return {trace, held_rows_of(tensor), tensor.rows};
}

std::vector<OpenTensor> tensors_of(const std::shared_ptr<const OpenTrace>& trace, const TensorChoice& choice) {
  if (trace->alignment().tensors.empty() && choice.pattern.empty()) return {};
  std::vector<OpenTensor> tensors;
  for (const LogicalTensor* tensor : choose_tensors(trace->alignment(), choice)) {
    tensors.push_back(open_tensor(trace, *tensor));
  }
  return tensors;
}

std::optional<Kind> kind_of(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  const std::optional<Kind> kind = kind_from_name(*name);
  if (kind) return kind;
  std::string known;
  for (std::uint8_t value = kKindFirst; value <= kKindLast; ++value) {
    known += (known.empty() ? "" : ", ") + std::string(name_of(static_cast<Kind>(value)));
  }
  throw InputError("kind '" + *name + "': no kind of tensors; expected one of " + known);
}

// The box must lie in the tensor: slices.py has cut it to fit.
OpenTensor part_of(const OpenTensor& tensor, Shape start, Shape size) {
  const Box box{std::move(start), std::move(size)};
  OpenTensor part{tensor.trace, region_of(tensor.tensor, box), tensor.rows};
  if (part.rows) {
    const auto first = part.rows->begin() + box.start.at(0);
    part.rows.emplace(first, first + box.size.at(0));
  }
  return part;
}

using Buffer = nb::ndarray<std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void copy_to(const OpenTensor& tensor, const Buffer& out) {
  const std::size_t room = out.size();
  auto* const data = reinterpret_cast<std::byte*>(out.data());
  without_lock([&] {
    const Elements elements(tensor.tensor);
    if (static_cast<std::int64_t>(room) != elements.bytes()) throw std::length_error("the array is of another size");
    elements.copy_to(data);
    return 0;
  });
}

// rank, start and size in the logical tensor, replica, term.
using PieceTuple = std::tuple<std::int32_t, Shape, Shape, std::int32_t, std::int32_t>;

std::vector<PieceTuple> pieces_of(const OpenTensor& tensor) {
  return without_lock([&] {
    std::vector<PieceTuple> pieces;
    for (const Piece& piece : tensor.tensor.pieces()) {
      pieces.emplace_back(piece.rank, piece.logical.start, piece.logical.size, piece.replica, piece.term);
    }
    return pieces;
  });
}

nb::object microbatch_of(const OpenTensor& tensor) {
  const std::int32_t microbatch = tensor.tensor.id.microbatch;
  return microbatch == kNoMicrobatch ? nb::none() : nb::object(nb::int_(microbatch));
}

std::map<std::string, std::int64_t> axes_of(const OpenTrace& trace) {
  std::map<std::string, std::int64_t> sizes;
  for (const Axis& axis : all_axes(trace.trace().mesh)) sizes[axis.name] = axis.size;
  return sizes;
}

bool is_complete(const OpenTrace& open) {
  const Trace& trace = open.trace();
  const auto complete = [](const RankTrace& rank) { return rank.complete; };
  return static_cast<std::int32_t>(trace.ranks.size()) == trace.world_size &&
         std::all_of(trace.ranks.begin(), trace.ranks.end(), complete);
}

}  // namespace

void bind_traces(nb::module_& module) {
  nb::class_<OpenTensor>(module, "Tensor")
      .def_prop_ro("name", [](const OpenTensor& self) { return text_of(self.tensor.id.name); })
      .def_prop_ro("kind", [](const OpenTensor& self) { return std::string(name_of(self.tensor.id.kind)); })
      .def_prop_ro("iteration", [](const OpenTensor& self) { return self.tensor.id.iteration; })
      .def_prop_ro("microbatch", microbatch_of, nb::sig("def microbatch(self) -> int | None"))
      .def_prop_ro("recomputed", [](const OpenTensor& self) { return self.tensor.id.pass == Pass::kRecompute; })
      .def_prop_ro("module_class", [](const OpenTensor& self) { return text_of(self.tensor.module_class); })
      .def_prop_ro("shape", [](const OpenTensor& self) { return self.tensor.shape; })
      .def_prop_ro("recorded_dtype", [](const OpenTensor& self) { return std::string(name_of(self.tensor.dtype)); })
      .def_prop_ro("rows", [](const OpenTensor& self) { return self.rows; })
      .def("dtype",
           [](const OpenTensor& self) {
             return without_lock([&] { return std::string(name_of(Elements(self.tensor).dtype())); });
           })
      .def("pieces", pieces_of)
      .def("part", part_of, nb::arg("start"), nb::arg("size"))
      .def("copy_to", copy_to, nb::arg("out"));
  nb::class_<OpenTrace>(module, "Trace")
      .def_prop_ro("run_id", [](const OpenTrace& self) { return text_of(self.trace().run_id); })
      .def_prop_ro("world_size", [](const OpenTrace& self) { return self.trace().world_size; })
      .def_prop_ro("axes", axes_of)
      .def_prop_ro("compute_dtype", [](const OpenTrace& self) { return text_of(self.trace().compute_dtype); })
      .def_prop_ro("provenance", [](const OpenTrace& self) { return text_of(self.trace().provenance.text); })
      .def_prop_ro("complete", is_complete)
      .def("left_out", [](const OpenTrace& self) { return to_json(self.alignment().findings); })
      .def(
          "choose",
          [](const std::shared_ptr<const OpenTrace>& self, std::string pattern, const std::optional<std::string>& kind,
             std::optional<std::int32_t> iteration, std::optional<std::int32_t> microbatch) {
            return tensors_of(self, {std::move(pattern), kind_of(kind), iteration, microbatch});
          },
          nb::arg("pattern") = "", nb::arg("kind") = nb::none(), nb::arg("iteration") = nb::none(),
          nb::arg("microbatch") = nb::none());
  module.def(
      "open_trace",
      [](const std::string& directory, const std::string& python, std::string annotations,
         std::vector<std::string> settings, std::string axes, std::shared_ptr<const OpenTrace> reference) {
        const AnnotationSource source{std::move(annotations), std::move(settings), std::move(axes)};
        return without_lock(
            [&] { return std::make_shared<const OpenTrace>(directory, python, source, std::move(reference)); });
      },
      nb::arg("directory"), nb::arg("python"), nb::arg("annotations"), nb::arg("settings"), nb::arg("axes"),
      nb::arg("reference") = nb::none());
}

}  // namespace ttrace::bindings
