// Data-parallel ranks that run slices of the reference's micro-batches, or share them along several axes; the scale of
// the loss.
#include <doctest/doctest.h>

#include <map>

#include "support/aligned.h"

using namespace ttrace;
using namespace ttrace::test;

namespace {

void add_integers(Trace& trace, std::size_t rank, const TensorId& id, const Shape& shape, std::vector<float> values) {
  // The in-memory trace holds 4 bytes an element; as int32 they are whatever the float's bits are.
  add_tensor(trace, rank, id, shape, std::move(values));
  trace.ranks[rank].entries.back().dtype = Dtype::kInt32;
}

const TensorId kSliceIds = tensor_id(Kind::kInput, "(model)", 0);
const TensorId kSliceFc = tensor_id(Kind::kOutput, "fc", 0);
const TensorId kSliceGradFc = tensor_id(Kind::kGradOutput, "fc", 0);
const TensorId kPosition = tensor_id(Kind::kOutput, "position", 0);
const TensorId kGradPosition = tensor_id(Kind::kGradOutput, "position", 0);
const TensorId kSliceGrad = tensor_id(Kind::kParamGrad, "fc.weight", 0);
const TensorId kSliceMainGrad = tensor_id(Kind::kMainGrad, "fc.weight");
const TensorId kSliceLoss = tensor_id(Kind::kScalar, "loss", 0);
const TensorId kLossModule = tensor_id(Kind::kOutput, "Loss", 0);
const TensorId kGradLossModule = tensor_id(Kind::kGradOutput, "Loss", 0);

struct Sample {
  float token, hidden, loss, grad;
};
const std::vector<Sample> kSamples = {{10, 1, 2, 0.5}, {11, 2, 4, 1}, {12, 3, 6, 1.5}, {13, 4, 12, 3}};

// Adds to a rank the tensors of one process that is given these samples, and divides the loss by their number.
void add_process(Trace& trace, std::size_t rank, const std::vector<std::size_t>& samples) {
  const auto n = static_cast<std::int64_t>(samples.size());
  std::vector<float> tokens, hidden, grad_hidden;
  float loss = 0, grad = 0, all = 0;
  for (const std::size_t i : samples) {
    const Sample& sample = kSamples[i];
    tokens.push_back(sample.token);
    hidden.push_back(sample.hidden);
    grad_hidden.push_back(sample.grad / static_cast<float>(n));
    loss += sample.loss / static_cast<float>(n);
    grad += sample.grad / static_cast<float>(n);
  }
  for (const Sample& sample : kSamples) all += sample.grad / static_cast<float>(kSamples.size());
  add_integers(trace, rank, kSliceIds, {n}, tokens);
  add_tensor(trace, rank, kPosition, {1}, {7});
  add_tensor(trace, rank, kSliceFc, {n}, hidden);
  add_tensor(trace, rank, kLossModule, {}, {loss});
  trace.ranks[rank].entries.back().module_class = "torch.nn.modules.loss.Loss";
  add_tensor(trace, rank, kSliceLoss, {}, {loss});
  add_tensor(trace, rank, kGradLossModule, {}, {1});
  add_tensor(trace, rank, kSliceGradFc, {n}, grad_hidden);
  add_tensor(trace, rank, kGradPosition, {1}, {grad});
  add_tensor(trace, rank, kSliceGrad, {1}, {grad});
  add_tensor(trace, rank, kSliceMainGrad, {1}, {all});
}

Trace one_process() {
  Trace trace = mesh_trace("", 1);
  add_process(trace, 0, {0, 1, 2, 3});
  return trace;
}

Trace sliced(const std::vector<std::size_t>& first, const std::vector<std::size_t>& second) {
  Trace trace = mesh_trace("dp=2", 2);
  add_process(trace, 0, first);
  add_process(trace, 1, second);
  return trace;
}

float& changed_value(Trace& trace, std::size_t rank, const TensorId& id, std::size_t element = 0) {
  RankTrace& one = trace.ranks[rank];
  for (Entry& entry : one.entries) {
    if (entry.id != id) continue;
    entry.checksum += 1;
    auto& bytes = std::const_pointer_cast<MemoryFile>(std::static_pointer_cast<const MemoryFile>(one.file))->bytes;
    return reinterpret_cast<float*>(bytes.data() + entry.offset)[element];
  }
  throw std::runtime_error("no such tensor");
}

const std::string kScaledByDp = "parallelism: {loss_scale: dp}";

}  // namespace

TEST_SUITE_BEGIN("identify");

TEST_CASE("ranks that run slices of the reference's batch are the same program, without a line about it") {
  const Report report = checked(one_process(), sliced({0, 1}, {2, 3}), kScaledByDp);
  CHECK(findings_in(report).empty());
  CHECK(report.totals.counts.pass == 10);
  const Report declared =
      checked(one_process(), sliced({0, 1}, {2, 3}), "parallelism: {loss_scale: dp, microbatches: {order: slices}}");
  CHECK(declared.same());
  const Trace one = one_process(), two = sliced({0, 1}, {2, 3});
  const Alignment expected = align(one, annotations(kScaledByDp), {});
  const Alignment alignment = align(two, annotations(kScaledByDp), layout_of(expected));
  CHECK(alignment.slices);
  REQUIRE(!alignment.notes.empty());
  CHECK(has(alignment.notes[alignment.notes.size() - 2],
            "the ranks along dp run slices of the reference's micro-batches, as counts and shapes say"));
}

TEST_CASE("an error in one slice is found in the tensor that has it") {
  for (const TensorId& id :
       {kSliceIds, kSliceFc, kSliceGradFc, kGradPosition, kSliceGrad, kSliceLoss, kSliceMainGrad}) {
    Trace candidate = sliced({0, 1}, {2, 3});
    changed_value(candidate, 1, id) *= 2;
    const auto found = findings_in(checked(one_process(), candidate, kScaledByDp));
    REQUIRE(found.size() == 1);
    CHECK(has(found[0], id.name.get() + " " + std::string(name_of(id.kind))));
  }
  // Without the scale that the program has, its loss and gradients are twice too large.
  CHECK(checked(one_process(), sliced({0, 1}, {2, 3}), "").totals.counts.fail == 5);
}

TEST_CASE("one gradient of a module without the loss scale is no inner one where the other has it") {
  const TensorId grad_input = tensor_id(Kind::kGradInput, "fc", 0), other = tensor_id(Kind::kGradInput, "fc:1", 0);
  // What the module is given beside may have its gradient of the loss alone, as what forces are no gradient of.
  std::vector<TensorId> given = {grad_input};
  SUBCASE("of one input") {}
  SUBCASE("of two inputs, of which an inner backward leaves one out") { given.push_back(other); }
  const auto with_grad_input = [&](Trace trace, std::int64_t samples) {
    for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
      const std::vector<float> all = {0.125F, 0.25F, 0.5F, 0.75F};
      std::vector<float> own;
      for (std::int64_t i = 0; i < samples; ++i) {
        own.push_back(all[rank * 2 + static_cast<std::size_t>(i)] * 4 / static_cast<float>(samples));
      }
      for (const TensorId& id : given) add_tensor(trace, rank, id, {samples}, own);
    }
    return trace;
  };
  const auto right = [&] { return with_grad_input(sliced({0, 1}, {2, 3}), 2); };
  const auto halved = [&](const std::vector<TensorId>& ids) {
    Trace trace = right();
    for (const TensorId& id : ids) {
      for (const std::size_t rank : {0, 1}) {
        for (const std::size_t i : {0, 1}) changed_value(trace, rank, id, i) /= 2;
      }
    }
    return trace;
  };
  const Trace reference = with_grad_input(one_process(), 4);
  CHECK(findings_in(checked(reference, right(), kScaledByDp)).empty());
  CHECK(findings_in(checked(reference, halved({kSliceGradFc, grad_input}), kScaledByDp)).empty());
  CHECK(checked(reference, halved({kSliceGradFc}), kScaledByDp).totals.counts.fail == 1);
  CHECK(checked(reference, halved({grad_input}), kScaledByDp).totals.counts.fail == 1);
}

TEST_CASE("samples that a sampler deals out in turns are found by the integer inputs") {
  const Report report = checked(one_process(), sliced({0, 2}, {1, 3}), kScaledByDp);
  CHECK(findings_in(report).empty());
  CHECK(checked(one_process(), sliced({0, 2}, {1, 3}),
                "parallelism: {loss_scale: dp, microbatches: {order: slices, layout: striped}}")
            .same());
  // Said wrongly, or dealt out otherwise, they differ.
  CHECK(checked(one_process(), sliced({0, 2}, {1, 3}),
                "parallelism: {loss_scale: dp, microbatches: {order: slices, layout: contiguous}}")
            .totals.counts.fail == 3);
}

TEST_CASE("where one rank holds other samples, those of the right ranks lie as they were dealt") {
  const Report report = checked(one_process(), sliced({0, 2}, {0, 1}), kScaledByDp);
  REQUIRE(!report.findings.empty());
  CHECK(findings_in(report)[0] == "(model) input: integer-differs");
  for (const Finding& finding : report.findings) {
    if (finding.id == kSliceIds || finding.id == kSliceFc) CHECK(finding.ranks == std::vector<std::int32_t>{1});
  }
}

TEST_CASE("a program that records a slice's shape of a tensor on axes of its own makes up the whole with the others") {
  const TensorId hidden = tensor_id(Kind::kOutput, "head", 0);
  const auto candidate = [&](std::int64_t said) {
    Trace trace = mesh_trace("tp=2,dp=2", 4);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      const auto part = static_cast<float>(rank % 2), slice = static_cast<float>(rank / 2);
      add_integers(trace, rank, kSliceIds, {2}, {10 + 2 * slice, 11 + 2 * slice});
      std::vector<float> values;
      for (const float row : {2 * slice, 2 * slice + 1}) values.push_back(10 * row + part);
      add_tensor(trace, rank, hidden, {2, 1}, values);
      const auto mapping = std::make_shared<RecordedMapping>();
      AxisPlacement split;
      split.axis = "tp";
      split.placement = Placement::kShard;
      split.dim = 1;
      mapping->axes = {{split, 2}};
      mapping->shape = Shape{said, 2};
      trace.ranks[rank].entries.back().mapping = mapping;
    }
    return trace;
  };
  Trace one = mesh_trace("", 1);
  add_integers(one, 0, kSliceIds, {4}, {10, 11, 12, 13});
  add_tensor(one, 0, hidden, {4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  CHECK(findings_in(checked(one, candidate(2), "")).empty());
  CHECK(findings_in(checked(one, candidate(4), "")).empty());
  // What is neither the slice's nor the whole's is another tensor's.
  CHECK(findings_in(checked(one, candidate(3), "")) == std::vector<std::string>{"head output: shape-mismatch"});
}

TEST_CASE("samples that a sampler deals out in an order of its own are found by the bytes of the inputs") {
  for (const auto& [first, second] : {std::pair{std::vector<std::size_t>{0, 3}, std::vector<std::size_t>{1, 2}},
                                      {{2, 0}, {3, 1}},
                                      {{3, 2, 1}, {0}}}) {
    CHECK(findings_in(checked(one_process(), sliced(first, second), kScaledByDp)).empty() == (first.size() == 2));
    Trace wrong = sliced(first, second);
    changed_value(wrong, 1, kSliceFc) *= 2;
    CHECK(checked(one_process(), wrong, kScaledByDp).totals.counts.fail >= 1);
  }
  // A sample twice is no order of the samples: rank 0 holds its own, and rank 1 others.
  const auto found = findings_in(checked(one_process(), sliced({0, 1}, {1, 2}), kScaledByDp));
  REQUIRE(!found.empty());
  CHECK(found[0] == "(model) input: integer-differs");
}

TEST_CASE("floating-point inputs of the model tell the samples as well, those of its modules do not") {
  const auto as_floats = [](Trace trace) {
    for (RankTrace& rank : trace.ranks) rank.entries.front().dtype = Dtype::kFloat32;
    return trace;
  };
  CHECK(findings_in(checked(as_floats(one_process()), as_floats(sliced({0, 2}, {1, 3})), kScaledByDp)).empty());
  const auto of_module = [&](Trace trace) {
    for (RankTrace& rank : trace.ranks) rank.entries.front().id.name = "fc";
    return as_floats(std::move(trace));
  };
  CHECK(checked(of_module(one_process()), of_module(sliced({0, 2}, {1, 3})), kScaledByDp).totals.counts.fail == 3);
}

namespace {

// Adds an output of these values to each rank.
Trace with_output(Trace trace, const std::string& name, const std::vector<std::vector<float>>& values, bool is_number) {
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const Shape shape = is_number ? Shape{} : Shape{static_cast<std::int64_t>(values[rank].size())};
    add_tensor(trace, rank, tensor_id(Kind::kOutput, name, 0), shape, values[rank]);
  }
  return trace;
}

// The wrong tensors of the candidate, and whether their places are guesses.
std::map<std::string, bool> guesses_in(const Report& report) {
  std::map<std::string, bool> guesses;
  for (const Finding& finding : report.findings) guesses[finding.id.name] = finding.guessed;
  return guesses;
}

}  // namespace

TEST_CASE("what is computed of dealt samples lies as they do; that a sample's rows lie together is a guess") {
  const auto flat = [](Trace trace, const std::vector<std::vector<float>>& samples) {
    std::vector<std::vector<float>> rows;
    for (const std::vector<float>& of_rank : samples) {
      for (std::vector<float>& values = rows.emplace_back(); const float sample : of_rank) {
        values.insert(values.end(), {sample, sample + 0.25F, sample + 0.5F});
      }
    }
    return with_output(std::move(trace), "flat", rows, false);
  };
  const Trace one = flat(one_process(), {{1, 2, 3, 4}});
  CHECK(findings_in(checked(one, flat(sliced({3, 0}, {2, 1}), {{4, 1}, {3, 2}}), kScaledByDp)).empty());
  // A correct program may as well put the first rows of all samples first.
  Trace other = sliced({0, 1}, {2, 3});
  const std::vector<std::vector<float>> by_row = {{1, 2, 1.25, 2.25, 1.5, 2.5}, {3, 4, 3.25, 4.25, 3.5, 4.5}};
  CHECK(guesses_in(checked(one, with_output(other, "flat", by_row, false), kScaledByDp)) ==
        std::map<std::string, bool>{{"flat", true}});
  // With an element for each sample it is none.
  changed_value(other, 1, kSliceFc) *= 2;
  CHECK(guesses_in(checked(one_process(), other, kScaledByDp)) == std::map<std::string, bool>{{"fc", false}});
}

TEST_CASE("a number of each rank's own samples is taken for a term of a mean, and its gradient has no factor") {
  const auto with_gradient = [](Trace trace, std::size_t ranks, float gradient) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      add_tensor(trace, rank, tensor_id(Kind::kGradOutput, "commitment", 0), {}, {gradient});
    }
    return trace;
  };
  const Trace one = with_gradient(with_output(one_process(), "commitment", {{3}}, true), 1, 0.25F);
  const auto two = [&](float first, float second, float gradient = 0.25F) {
    const Trace trace = with_output(sliced({0, 1}, {2, 3}), "commitment", {{first}, {second}}, true);
    return checked(one, with_gradient(trace, 2, gradient), kScaledByDp);
  };
  CHECK(findings_in(two(2, 4)).empty());
  // It may be something else: that it is wrong is a guess.
  CHECK(guesses_in(two(1, 3)) == std::map<std::string, bool>{{"commitment", true}});
  // Numbers that add up to the reference's are terms of a sum, whose gradient has the factor of all others.
  CHECK(findings_in(two(1, 2, 0.5F)).empty());
  CHECK(findings_in(two(1, 2)).size() == 1);
  // So they are where each rank has the same: what is multiplied by how many samples there are.
  CHECK(findings_in(two(1.5F, 1.5F, 0.5F)).empty());
  CHECK(findings_in(two(1.25F, 1.25F, 0.5F)).size() == 2);
}

TEST_CASE("the loss of a further model is one, and a scalar that a program calls so is not") {
  const auto with_loss = [](Trace trace, std::size_t ranks, const std::string& name, std::int32_t chunk, float value) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      TensorId id = tensor_id(Kind::kScalar, name, 0);
      id.chunk = chunk;
      add_tensor(trace, rank, id, {}, {rank == 0 ? value : value + 2});
    }
    return trace;
  };
  const Trace two = sliced({0, 1}, {2, 3});
  CHECK(findings_in(checked(with_loss(one_process(), 1, "loss", 1, 3), with_loss(two, 2, "loss", 1, 2), kScaledByDp))
            .empty());
  CHECK(findings_in(checked(with_loss(one_process(), 1, "mine.loss", 0, 3), with_loss(two, 2, "mine.loss", 0, 2),
                            kScaledByDp)) == std::vector<std::string>{"mine.loss scalar: replicas-disagree"});
}

TEST_CASE("ranks that are given more samples than the reference run no slices, and a note says what is expected") {
  const Report report = checked(one_process(), sliced({0, 1, 2, 3}, {0, 1, 2, 3}), kScaledByDp);
  CHECK_FALSE(report.same());
  REQUIRE(!report.notes.empty());
  CHECK(
      report.notes.back() ==
      "iteration 0: the reference ran 1 micro-batch, the candidate 2 in all; expected the same ones: a reference with "
      "2, or a candidate whose ranks run 1 each, of slices of its samples (microbatches: {order: slices})");
}

TEST_CASE("micro-batches interleave over several axes, the first outermost") {
  Trace trace = mesh_trace("dp_shard=2,dp_replicate=2", 4);
  for (const std::int32_t m : {0, 1}) {
    for (const std::size_t rank : {0, 1, 2, 3}) add_tensor(trace, rank, tensor_id(Kind::kOutput, "mlp", m), {2});
  }
  const auto rank_of = [&](const std::string& text, std::int32_t microbatch) {
    const Alignment alignment = align(trace, annotations(text), {});
    REQUIRE(alignment.tensors.size() == 8);
    const Piece piece = alignment.tensors.at(tensor_id(Kind::kOutput, "mlp", microbatch)).pieces().at(0);
    return std::pair(piece.rank, piece.entry->id.microbatch);
  };
  const std::string both = "parallelism: {microbatches: {axis: [dp_replicate, dp_shard]}}";
  CHECK(rank_of(both, 1) == std::pair(1, 0));
  CHECK(rank_of(both, 2) == std::pair(2, 0));
  CHECK(rank_of(both, 6) == std::pair(2, 1));
  CHECK(rank_of("", 2) == std::pair(2, 0));  // PyTorch's names are the default where there is no dp
  CHECK(rank_of("parallelism: {microbatches: {axis: [dp_shard, dp_replicate]}}", 2) == std::pair(1, 0));
  CHECK(rank_of("parallelism: {microbatches: {axis: [dp_replicate, dp_shard], order: blocked}}", 2) == std::pair(1, 0));
}

namespace {

// Ranks along dp and one process, with the tokens and the outputs of these micro-batches.
Trace with_microbatches(const std::string& mesh, const std::vector<std::vector<std::int32_t>>& by_rank) {
  Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(by_rank.size()));
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    for (std::size_t m = 0; m < by_rank[rank].size(); ++m) {
      TensorId ids = kSliceIds, fc = kSliceFc;
      ids.microbatch = fc.microbatch = static_cast<std::int32_t>(m);
      const auto value = static_cast<float>(by_rank[rank][m] + 1);
      add_integers(trace, rank, ids, {1}, {value});
      trace.ranks[rank].entries.back().checksum = static_cast<std::uint64_t>(value);
      add_tensor(trace, rank, fc, {1}, {value});
    }
  }
  return trace;
}

}  // namespace

TEST_CASE("ranks that run consecutive micro-batches are known by the model's integer inputs") {
  const Trace one = with_microbatches("", {{0, 1, 2, 3}});
  for (const char* mesh : {"dp=2", "dp_replicate=1,batch=2,dp=batch"}) {
    CHECK(checked(one, with_microbatches(mesh, {{0, 2}, {1, 3}}), "").same());
    CHECK(checked(one, with_microbatches(mesh, {{0, 1}, {2, 3}}), "").same());
    CHECK(findings_in(checked(one, with_microbatches(mesh, {{0, 1}, {2, 3}}),
                              "parallelism: {microbatches: {order: interleaved}}"))
              .size() == 4);
    // Neither, and each once.
    CHECK(checked(one, with_microbatches(mesh, {{0, 1}, {3, 2}}), "").same());
    const Report dealt = checked(one, with_microbatches(mesh, {{0, 3}, {1, 2}}), "");
    CHECK(dealt.same());
    // One twice, and another one not at all: in the order that most have, and different in that one alone.
    CHECK(findings_in(checked(one, with_microbatches(mesh, {{0, 1}, {2, 2}}), "")).size() == 2);
    CHECK(findings_in(checked(one, with_microbatches(mesh, {{0, 1}, {2, 5}}), "")).size() == 2);
    CHECK(findings_in(checked(one, with_microbatches(mesh, {{0, 2}, {1, 5}}), "")).size() == 2);
  }
}

TEST_CASE("the order of micro-batches is told by floating-point inputs, too, and for iterations that hold none") {
  const auto with_floats = [](const std::string& mesh, const std::vector<std::vector<std::int32_t>>& by_rank) {
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(by_rank.size()));
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (std::size_t m = 0; m < by_rank[rank].size(); ++m) {
        const auto value = static_cast<float>(by_rank[rank][m] + 1);
        TensorId input = tensor_id(Kind::kInput, "(model)", static_cast<std::int32_t>(m));
        add_tensor(trace, rank, input, {1}, {value});
        trace.ranks[rank].entries.back().checksum = static_cast<std::uint64_t>(value);
        TensorId later = tensor_id(Kind::kScalar, "loss", static_cast<std::int32_t>(m));
        later.iteration = 1;
        add_tensor(trace, rank, later, {}, {value});
      }
    }
    return trace;
  };
  const Trace one = with_floats("", {{0, 1, 2, 3}});
  CHECK(checked(one, with_floats("dp=2", {{0, 1}, {2, 3}}), "").same());
  CHECK(checked(one, with_floats("dp=2", {{0, 3}, {1, 2}}), "").same());
  CHECK_FALSE(checked(one, with_floats("dp=2", {{0, 1}, {2, 5}}), "").same());
}

TEST_CASE("one loss behind all of a rank's micro-batches is a term of the reference's only one") {
  const auto with_loss = [](Trace trace, const std::vector<std::pair<std::int32_t, float>>& by_rank) {
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      add_tensor(trace, rank, tensor_id(Kind::kScalar, "loss", by_rank[rank].first), {}, {by_rank[rank].second});
    }
    return trace;
  };
  const Trace one = with_loss(with_microbatches("", {{0, 1, 2, 3}}), {{3, 5}});
  for (const std::vector<std::vector<std::int32_t>>& dealt :
       {std::vector<std::vector<std::int32_t>>{{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}}) {
    CHECK(checked(one, with_loss(with_microbatches("dp=2", dealt), {{1, 2}, {1, 3}}), "").same());
    const Trace means = with_loss(with_microbatches("dp=2", dealt), {{1, 4}, {1, 6}});
    CHECK(checked(one, means, "parallelism: {loss_scale: dp}").same());
    CHECK_FALSE(checked(one, with_loss(with_microbatches("dp=2", dealt), {{1, 2}, {1, 4}}), "").same());
    // A loss of each micro-batch is none of all, and neither is one that some rank lacks.
    CHECK_FALSE(checked(one, with_loss(with_microbatches("dp=2", dealt), {{0, 2}, {1, 3}}), "").same());
    CHECK_FALSE(checked(one, with_loss(with_microbatches("dp=2", dealt), {{1, 5}}), "").same());
  }
}

TEST_CASE("slices of one micro-batch beside others that ranks run whole are told by the inputs") {
  // Each rank is given its own samples one by one, then its part of all.
  const auto process = [](const std::string& mesh, const std::vector<std::vector<std::vector<float>>>& by_rank) {
    Trace trace = mesh_trace(mesh, static_cast<std::int32_t>(by_rank.size()));
    for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (std::size_t m = 0; m < by_rank[rank].size(); ++m) {
        const std::vector<float>& values = by_rank[rank][m];
        const auto number = static_cast<std::int32_t>(m);
        const Shape shape = {static_cast<std::int64_t>(values.size())};
        add_tensor(trace, rank, tensor_id(Kind::kInput, "(model)", number), shape, values);
        add_tensor(trace, rank, tensor_id(Kind::kOutput, "fc", number), shape, values);
        TensorId later = tensor_id(Kind::kScalar, "loss", 0);
        later.iteration = 1;
        if (m == 0) add_tensor(trace, rank, later, {}, {by_rank.size() == 1 ? 4 : values[0]});  // a sum of terms
      }
    }
    return trace;
  };
  const Trace one = process("", {{{1}, {2}, {3}, {4}, {1, 2, 3, 4}}});
  const Trace two = process("dp=2", {{{1}, {2}, {1, 2}}, {{3}, {4}, {3, 4}}});
  CHECK(checked(one, two, "").same());
  const Alignment candidate = align(two, {}, layout_of(align(one, {}, {})));
  CHECK(candidate.tensors.at(tensor_id(Kind::kOutput, "fc", 3)).pieces().at(0).rank == 1);
  CHECK(candidate.tensors.at(tensor_id(Kind::kOutput, "fc", 4)).pieces().size() == 2);
  // Where what is left makes up nothing of the reference's, or one rank has more of it, the order is that which most fit.
  const auto rank_of_second = [&](const Trace& wrong) {
    return align(wrong, {}, layout_of(align(one, {}, {})))
        .tensors.at(tensor_id(Kind::kOutput, "fc", 1))
        .pieces()[0]
        .rank;
  };
  CHECK(rank_of_second(process("dp=2", {{{1}, {2}, {1, 2}}, {{3}, {4}, {3, 4, 4}}})) == 1);
  CHECK(rank_of_second(process("dp=2", {{{1}, {2}, {1, 2}}, {{3}, {5}, {3, 4}}})) == 0);
}

TEST_CASE("inputs that a rank recomputes do not hide which micro-batches it runs") {
  Trace candidate = with_microbatches("dp=2", {{0, 1}, {2, 3}});
  for (std::size_t rank : {0, 1}) {
    TensorId ids = recomputed(kSliceIds);
    ids.microbatch = 1;
    add_integers(candidate, rank, ids, {1}, {rank == 0 ? 2.0F : 4.0F});
  }
  const Trace one = with_microbatches("", {{0, 1, 2, 3}});
  const Alignment reference = align(one, {}, {});
  TensorId second = kSliceFc;
  second.microbatch = 1;
  CHECK(align(candidate, {}, layout_of(reference)).tensors.at(second).pieces().at(0).rank == 0);
}

TEST_CASE("a sum over micro-batches runs over all of their axes") {
  Trace one = mesh_trace("", 1), trace = mesh_trace("dp_shard=2,dp_replicate=2", 4);
  const std::string text = "fc.weight: {param_grad: {microbatch: partial}}";
  for (const std::size_t rank : {0, 1, 2, 3}) {
    const std::vector<float> value = {static_cast<float>(rank + 1)};
    add_tensor(trace, rank, kSliceGrad, {1}, value);
    TensorId id = kSliceGrad;
    id.microbatch = static_cast<std::int32_t>(rank);
    add_tensor(one, 0, id, {1}, value);
  }
  CHECK(checked(one, trace, text).same());
}

TEST_CASE("a loss scale may count the micro-batches of a rank") {
  Trace one = mesh_trace("", 1), trace = mesh_trace("dp=2", 2);
  for (std::int32_t m = 0; m < 4; ++m) {
    TensorId id = kSliceLoss;
    id.microbatch = m;
    add_tensor(one, 0, id, {}, {static_cast<float>(m + 1)});
    id.microbatch = m / 2;
    add_tensor(trace, static_cast<std::size_t>(m % 2), id, {}, {static_cast<float>(m + 1) * 4});
  }
  CHECK(checked(one, trace, "parallelism: {loss_scale: microbatches*dp}").same());
  CHECK(checked(one, trace, "parallelism: {loss_scale: microbatches}").totals.counts.fail == 4);
  CHECK(checked(one, trace, "parallelism: {loss_scale: 2*dp}").same());  // of one process 1, too
  CHECK(checked(one, trace, "parallelism: {loss_scale: 3*dp}").totals.counts.fail == 4);
}

TEST_CASE("the output of a loss module has the scale of the loss where it is the loss, and only there") {
  // Two micro-batches, one on each of two ranks. The module divides by the micro-batches of its rank, or the program
  // does after it.
  for (const bool divides : {true, false}) {
    Trace one = mesh_trace("", 1), trace = mesh_trace("dp=2", 2);
    for (std::int32_t m = 0; m < 2; ++m) {
      const float mean = static_cast<float>(m + 3);
      TensorId output = kLossModule, loss = kSliceLoss, grad = kGradLossModule;
      output.microbatch = loss.microbatch = grad.microbatch = m;
      add_tensor(one, 0, output, {}, {divides ? mean / 2 : mean});
      add_tensor(one, 0, loss, {}, {mean / 2});
      add_tensor(one, 0, grad, {}, {divides ? 1.f : 0.5f});
      output.microbatch = loss.microbatch = grad.microbatch = 0;
      add_tensor(trace, static_cast<std::size_t>(m), output, {}, {mean});
      add_tensor(trace, static_cast<std::size_t>(m), loss, {}, {mean});
      add_tensor(trace, static_cast<std::size_t>(m), grad, {}, {1});
    }
    CHECK(findings_in(checked(one, trace, kScaledByDp)).empty());
  }
}

TEST_CASE("the mean over an axis is the sum of its terms by their number") {
  Trace one = mesh_trace("", 1), trace = mesh_trace("cp=2", 2);
  const TensorId loss = tensor_id(Kind::kScalar, "lm loss");
  add_tensor(one, 0, loss, {}, {3});
  add_tensor(trace, 0, loss, {}, {2});
  add_tensor(trace, 1, loss, {}, {4});
  CHECK(checked(one, trace, "lm loss: {scalar: {cp: mean}}").same());
  CHECK(checked(one, trace, "lm loss: {scalar: {cp: partial}}").totals.counts.fail == 1);
}

TEST_SUITE_END();
