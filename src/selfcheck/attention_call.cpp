#include "selfcheck/attention_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "selfcheck/masks.h"

namespace ttrace {
namespace {

constexpr HeadOrder kOrders[] = {
    {0, 1, 2}, {1, 0, 2}, {2, 0, 1}};  // [s, b, heads, d], [b, s, heads, d], [b, heads, s, d]
constexpr std::int64_t kSamples = 256;

bool is_called(const LogicalTensor& tensor, std::string_view word) {
  std::string name = tensor.module_class.substr(tensor.module_class.rfind('.') + 1);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name.find(word) != name.npos;
}

// `core#1` with the member `:0` is `core:0#1`.
std::string member_of(const std::string& name, std::string_view member) {
  const std::size_t call = name.find('#');
  return call == name.npos ? name + std::string(member)
                           : name.substr(0, call) + std::string(member) + name.substr(call);
}

const LogicalTensor* input_of(const Alignment& alignment, const TensorId& id,
                              std::initializer_list<std::string_view> members) {
  for (const std::string_view member : members) {
    const LogicalTensor* found = find_tensor(alignment, id, Kind::kInput, member_of(id.name, member));
    if (found != nullptr && is_floating(found->dtype)) return found;
  }
  return nullptr;
}

// Outputs of the modules inside the one whose output `id` names, in the same call of it.
std::vector<const LogicalTensor*> outputs_inside(const Alignment& alignment, const TensorId& id) {
  const std::size_t call = id.name.find('#');
  const std::string prefix = id.name.substr(0, call) + ".", suffix = call == id.name.npos ? "" : id.name.substr(call);
  TensorId first = id;
  first.name = prefix;
  std::vector<const LogicalTensor*> found;
  for (auto it = alignment.tensors.lower_bound(first); it != alignment.tensors.end(); ++it) {
    TensorId same = it->first;
    same.name = id.name;
    if (same != id || !it->first.name.starts_with(prefix)) break;
    const std::size_t own = it->first.name.find('#');
    if ((own == id.name.npos ? "" : it->first.name.substr(own)) == suffix) found.push_back(&it->second);
  }
  return found;
}

bool has_parameters(const Alignment& alignment, const TensorId& id, const std::string& path) {
  const TensorId first{.iteration = id.iteration, .kind = Kind::kParam, .name = path + "."};
  const auto found = alignment.tensors.lower_bound(first);
  return found != alignment.tensors.end() && found->first.kind == Kind::kParam &&
         found->first.name.starts_with(first.name);
}

void find_inside(const Alignment& alignment, AttentionCall& call) {
  const std::vector<const LogicalTensor*> inside = outputs_inside(alignment, call.context->id);
  for (const LogicalTensor* output : inside) {
    if (!is_called(*output, "softmax") || !is_floating(output->dtype)) continue;
    if (is_called(*output, "softmaxone")) call.plain_softmax = false;
    // The outermost: a softmax that masks may call another one inside.
    if (call.probabilities != nullptr && call.probabilities->id.name.size() <= output->id.name.size()) continue;
    const LogicalTensor* scores = input_of(alignment, output->id, {"", ":0", ":input"});
    if (scores == nullptr || scores->shape != output->shape || scores->shape.size() != 4) continue;
    call.scores = scores;
    call.probabilities = call.applied = output;
  }
  if (call.probabilities == nullptr) return;
  for (const LogicalTensor* output : inside) {
    if (is_called(*output, "dropout") && output->shape == call.scores->shape &&
        output->order > call.probabilities->order) {
      call.applied = output;
    }
  }
}

std::optional<AttentionSizes> sizes_in(const AttentionCall& call, const HeadOrder& order) {
  const Shape &query = call.query->shape, &key = call.key->shape, &value = call.value->shape;
  const Shape &scores = call.scores->shape, &context = call.context->shape;
  const AttentionSizes sizes{scores[0], scores[1], key[order.head], scores[2], scores[3]};
  const auto is = [&](const Shape& shape, std::int64_t rows, std::int64_t heads) {
    return shape[order.batch] == sizes.batch && shape[order.row] == rows && shape[order.head] == heads;
  };
  if (!is(query, sizes.rows, sizes.heads) || !is(key, sizes.cols, sizes.kv_heads) || query[3] != key[3]) return {};
  if (!is(value, sizes.cols, sizes.kv_heads) || sizes.kv_heads == 0 || sizes.heads % sizes.kv_heads != 0) return {};
  if (context.size() == 4)
    return is(context, sizes.rows, sizes.heads) && context[3] == value[3] ? std::optional(sizes) : std::nullopt;
  // Heads and features in one dimension: only where the rows stand first or second.
  const std::size_t row = order.row == 0 ? 0 : 1;
  const bool fits = context.size() == 3 && context[row] == sizes.rows && context[1 - row] == sizes.batch &&
                    context[2] == sizes.heads * value[3];
  return fits ? std::optional(sizes) : std::nullopt;
}

struct Sample {
  double score, product, magnitude;  // sum of |q k|
};

std::vector<Sample> samples_of(const AttentionCall& call, const AttentionSizes& sizes, const HeadOrder& order) {
  const Heads query(*call.query, order, sizes.heads), key(*call.key, order, sizes.kv_heads), scores(*call.scores);
  const std::int64_t d = call.query->shape[3];
  std::vector<double> left(static_cast<std::size_t>(d)), right(left);
  std::vector<Sample> samples;
  const std::int64_t all = sizes.batch * sizes.heads * sizes.rows * sizes.cols;
  for (std::int64_t i = 0; i < std::min(kSamples, all); ++i) {
    std::int64_t at = all <= kSamples ? i : i * 2654435761 % all;  // Knuth's multiplicative hash: no pattern
    const std::int64_t col = at % sizes.cols, row = (at /= sizes.cols) % sizes.rows;
    const std::int64_t head = (at /= sizes.rows) % sizes.heads, batch = at / sizes.heads;
    const double score = element(scores.at(batch, head), row, col);
    if (!std::isfinite(score) || score <= kMasked) continue;
    read(query.at(batch, head), row, 1, 0, d, left.data());
    read(key.at(batch, sizes.kv_head_of(head)), col, 1, 0, d, right.data());
    Sample sample{score, 0, 0};
    for (std::size_t k = 0; k < left.size(); ++k) {
      sample.product += left[k] * right[k];
      sample.magnitude += std::fabs(left[k] * right[k]);
    }
    if (std::isfinite(sample.magnitude)) samples.push_back(sample);
  }
  return samples;
}

// Of the samples with the largest products, whose rounding says least.
double median_ratio(std::vector<Sample> samples) {
  std::sort(samples.begin(), samples.end(),
            [](const Sample& a, const Sample& b) { return std::fabs(a.product) > std::fabs(b.product); });
  samples.resize((samples.size() + 1) / 2);
  std::vector<double> ratios;
  for (const Sample& sample : samples) {
    if (sample.product != 0) ratios.push_back(sample.score / sample.product);
  }
  if (ratios.empty()) return 0;
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2), ratios.end());
  return ratios[ratios.size() / 2];
}

// The first number in the path, from 1: `decoder.layers.3.attention` is of layer 4.
std::int64_t layer_of(const std::string& path) {
  for (std::size_t dot = path.find('.'); dot != path.npos; dot = path.find('.', dot + 1)) {
    std::int64_t number = 0;
    const char* const begin = path.data() + dot + 1;
    const auto [end, error] = std::from_chars(begin, path.data() + path.size(), number);
    if (error == std::errc() && (end == path.data() + path.size() || *end == '.')) return number + 1;
  }
  return 1;
}

void find_scale(const AttentionCall& call, AttentionFit& fit) {
  const std::vector<Sample> samples = samples_of(call, fit.sizes, fit.order);
  const double epsilon = epsilon_of(call.scores->dtype);
  const double measured = median_ratio(samples);
  const double root = 1 / std::sqrt(static_cast<double>(call.query->shape[3]));
  fit.scale = measured;
  for (const double usual : {root, root / static_cast<double>(layer_of(call.path)), 1.0}) {
    // Two roundings of the score, and what the sum lost: of large products, little.
    if (fit.usual || std::fabs(measured / usual - 1) > 4 * epsilon) continue;
    fit.scale = usual;
    fit.usual = true;
  }
  int exponent = 0;
  fit.rounded_twice = std::frexp(fit.scale, &exponent) != 0.5;
  std::int64_t agreeing = 0;
  for (const Sample& sample : samples) {
    const double allowed = 4 * epsilon * std::fabs(fit.scale) * sample.magnitude;
    agreeing += std::fabs(sample.score - fit.scale * sample.product) <= allowed;
  }
  if (!samples.empty()) fit.agreeing = static_cast<double>(agreeing) / static_cast<double>(samples.size());
}

Shape strides_of(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * shape[d + 1];
  return strides;
}

}  // namespace

std::optional<AttentionCall> attention_call_of(const Alignment& alignment, const LogicalTensor& output) {
  if (output.id.name.find(':') != output.id.name.npos || !is_called(output, "attention")) return {};
  AttentionCall call;
  call.context = &output;
  call.path = output.id.name.substr(0, output.id.name.find('#'));
  call.query = input_of(alignment, output.id, {":0", ":query", ":query_layer"});
  call.key = input_of(alignment, output.id, {":1", ":key", ":key_layer"});
  call.value = input_of(alignment, output.id, {":2", ":value", ":value_layer"});
  for (const LogicalTensor* tensor : {call.query, call.key, call.value}) {
    if (tensor == nullptr || tensor->shape.size() != 4) return {};
  }
  if (has_parameters(alignment, output.id, call.path)) call.plain_softmax = false;
  find_inside(alignment, call);
  return call;
}

const LogicalTensor* gradient_of(const Alignment& alignment, const LogicalTensor& tensor) {
  const Kind kind = tensor.id.kind == Kind::kInput ? Kind::kGradInput : Kind::kGradOutput;
  const LogicalTensor* gradient = find_tensor(alignment, tensor.id, kind, tensor.id.name);
  return gradient != nullptr && gradient->shape == tensor.shape && is_floating(gradient->dtype) ? gradient : nullptr;
}

std::optional<AttentionFit> fit_of(const AttentionCall& call) {
  std::optional<AttentionFit> best;
  for (const HeadOrder& order : kOrders) {
    const std::optional<AttentionSizes> sizes = sizes_in(call, order);
    if (!sizes) continue;
    AttentionFit fit{.order = order, .sizes = *sizes};
    find_scale(call, fit);
    if (!best || fit.agreeing > best->agreeing) best = fit;
  }
  return best;
}

Heads::Heads(const LogicalTensor& tensor, const HeadOrder& order, std::int64_t heads) : matrix_(matrix_of(tensor)) {
  Shape shape = tensor.shape;
  HeadOrder own = order;
  if (shape.size() == 3) {  // [row, batch, heads * d], or [batch, row, heads * d]
    shape = {shape[0], shape[1], heads, heads == 0 ? 0 : shape[2] / heads};
    own = order.row == 0 ? kOrders[0] : kOrders[1];
  }
  set_strides(shape, own);
}

Heads::Heads(const LogicalTensor& tensor) : matrix_(matrix_of(tensor)) { set_strides(tensor.shape, {2, 0, 1}); }

void Heads::set_strides(const Shape& shape, const HeadOrder& order) {
  const Shape strides = strides_of(shape);
  batch_stride_ = strides[order.batch];
  head_stride_ = strides[order.head];
  row_stride_ = strides[order.row];
  rows_ = shape[order.row];
  cols_ = shape[3];
}

abft::MatrixView Heads::at(std::int64_t batch, std::int64_t head) const {
  const std::int64_t first = element(batch, head, 0, 0);
  const abft::MatrixView& whole = matrix_.view;
  return {whole.data + first * size_of(whole.dtype), whole.dtype, rows_, cols_, row_stride_, 1};
}

std::int64_t Heads::element(std::int64_t batch, std::int64_t head, std::int64_t row, std::int64_t col) const {
  return batch * batch_stride_ + head * head_stride_ + row * row_stride_ + col;
}

}  // namespace ttrace
