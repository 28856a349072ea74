#include "compare/box_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "compare/kernel.h"
#include "numeric/convert.h"

namespace ttrace {

BoxReader::BoxReader(const OverlayBox& box) : reference_terms_(box.reference.size()) {
  std::vector<const StridedTerm*> sources;
  for (const StridedTerm& term : box.reference) sources.push_back(&term);
  for (const StridedTerm& term : box.candidate) sources.push_back(&term);
  for (const StridedTerm* source : sources) terms_.push_back({source->data, source->dtype, {}});

  // Goes from the innermost dimension outwards. A dimension joins the run, or the next dimension inside it, if its
  // stride in every term is the size of what is inside.
  Shape inner_first;
  for (std::size_t i = box.logical.size.size(); i-- > 0;) {
    const std::int64_t size = box.logical.size[i];
    elements_ *= size;
    if (size == 1) continue;
    const auto steps_over = [&](std::size_t term) {
      const std::int64_t inside = inner_first.empty() ? run_length_ : terms_[term].strides.back() * inner_first.back();
      return sources[term]->strides[i] == inside;
    };
    bool joins = true;
    for (std::size_t term = 0; term < sources.size(); ++term) joins = joins && steps_over(term);
    if (joins) {
      (inner_first.empty() ? run_length_ : inner_first.back()) *= size;
      continue;
    }
    inner_first.push_back(size);
    for (std::size_t term = 0; term < sources.size(); ++term) {
      terms_[term].strides.push_back(sources[term]->strides[i]);
    }
  }
  outer_.assign(inner_first.rbegin(), inner_first.rend());
  for (Term& term : terms_) std::reverse(term.strides.begin(), term.strides.end());
}

const std::byte* BoxReader::address_of(std::size_t term, std::int64_t position) const {
  std::int64_t offset = position % run_length_;
  std::int64_t row = position / run_length_;
  for (std::size_t i = outer_.size(); i-- > 0; row /= outer_[i]) {
    offset += (row % outer_[i]) * terms_[term].strides[i];
  }
  return terms_[term].data + offset * size_of(terms_[term].dtype);
}

template <class Visit>
void BoxReader::for_each_run(std::int64_t position, std::int64_t count, Visit visit) const {
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t size = std::min(left_in_run(position + done), count - done);
    visit(position + done, size, done);
    done += size;
  }
}

void BoxReader::gather(std::size_t term, std::int64_t position, std::int64_t count, std::byte* out) const {
  const std::int64_t width = size_of(dtype(term));
  for_each_run(position, count, [&](std::int64_t from, std::int64_t size, std::int64_t done) {
    std::memcpy(out + done * width, address_of(term, from), static_cast<std::size_t>(size * width));
  });
}

void BoxReader::gather_integers(std::size_t term, std::int64_t position, std::int64_t count, std::int64_t* out) const {
  for_each_run(position, count, [&](std::int64_t from, std::int64_t size, std::int64_t done) {
    widen(address_of(term, from), dtype(term), size, out + done);
  });
}

void BoxReader::gather_sum(std::size_t first, std::size_t last, double scale, std::int64_t position, std::int64_t count,
                           double* out) const {
  std::array<double, kBlockElements> next;
  for (std::size_t term = first; term < last; ++term) {
    double* into = term == first ? out : next.data();
    for_each_run(position, count, [&](std::int64_t from, std::int64_t size, std::int64_t done) {
      widen(address_of(term, from), dtype(term), size, into + done);
    });
    if (term == first) continue;
    for (std::int64_t i = 0; i < count; ++i) out[i] += next[static_cast<std::size_t>(i)];
  }
  if (scale == 1) return;
  for (std::int64_t i = 0; i < count; ++i) out[i] /= scale;
}

}  // namespace ttrace
