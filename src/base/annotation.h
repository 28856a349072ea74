// Annotations: how a parallel program places its tensors, in YAML. The schema for users, with examples,
// is annotations/README.md; reading the file is src/files/annotation_file.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapping.h"
#include "base/trace.h"

namespace ttrace {

// Stands in place of a file: no annotations, not even those that the program of a trace names.
inline constexpr std::string_view kNoAnnotations = "none";

// Says which annotations to read, as `-a`, `--set` and `--axes` say it.
struct AnnotationSource {
  std::string file;                        // a path, the name of a preset or kNoAnnotations; empty: not said
  std::vector<std::string> settings = {};  // values of parameters, `NAME=VALUE` with VALUE in YAML
  std::string axes = {};                   // as in parse_mesh; empty: what the file says, or the trace
  bool with_guesses = false;               // read the guesses of a draft (`Guess`) as if they counted
};

// A line of an annotation file, for messages.
struct SourceLine {
  std::string file;  // empty where there is none
  int line = 0;
};
std::string to_string(const SourceLine& source);  // `gpt.yaml:14`; without a file `annotations:14`

// Forward outputs of a router, as patterns; what its choice of experts follows from, to tell a near tie.
struct RouterRule {
  std::string logits;  // [.., experts], a row for each token
  // Scores are as `logits`, where it does not choose by these: what a score function makes of them, with the experts'
  // bias. Empty, or not recorded by the same call: it chooses by the logits.
  std::string scores;
  // int64 [3]: how many groups the experts are in, how many of these it chooses experts from, and how many of a group's
  // highest scores add up to the group's. Empty, or not recorded by the same call: it chooses among all experts.
  std::string groups;
};

// The rows (dimension 0) are tokens that a router has sent here. Names are patterns; of several tensors that match, the
// one meant shares the longest path with the tensor in question. Which token a row is, `ids` says, or where none were
// recorded, `routing` and `sources`: an expert's rows are the tokens that were routed to it, rank by rank, in the order
// of each rank's tokens. One of the two ways may be empty.
struct RowRule {
  std::string ids;  // an input [rows, 2] of the same call: rank and row of `of` there, which the row came from
  // An output of the router: [tokens, experts] of booleans, which tokens go to which experts; or [tokens, choices] of
  // the experts' numbers.
  std::string routing;
  std::string sources;  // an input [ranks]: the ranks whose tokens came here, in order; empty: the rank's own alone
  std::string of;       // an input whose dimensions but the last make up the tokens
  RouterRule router;
};

// `kind` is empty for the placement of a parameter (all parameter kinds) and set for `input:`, `output:`
// or a kind named on its own (`param_grad:`). Gradients follow: grad_output an output's, grad_input an
// input's, unless named themselves. Several axes on one dimension nest in the order written, outermost
// first.
struct AnnotationRule {
  std::string pattern;  // dotted suffix or glob of the canonical name
  std::optional<Kind> kind;
  std::vector<AxisPlacement> axes;  // their lines are of the same file
  SourceLine source;                // of the pattern
  // Describes the rank's own layout (token ids, padded sequence lengths): never compared.
  bool local = false;
  std::optional<RowRule> rows{};
  // The logical value is the sum over the micro-batches of an iteration: for a parameter kind or a scalar.
  bool sum_microbatches = false;
  bool optional = false;  // for tensors that not every program of the kind has: not mentioned where it places none
};

enum class MicrobatchOrder : std::uint8_t {
  kInterleaved,  // the ranks run different micro-batches, in turns
  kBlocked,      // ... each a run of them
  kSlices,       // the ranks run the same micro-batches, each its slice of every one
};

// Says how the ranks share the micro-batches.
struct MicrobatchRule {
  std::vector<std::string> axes = {};    // outermost first; empty: those that the mesh has of `microbatch_axes`
  std::optional<MicrobatchOrder> order;  // absent: slices where the counts and the shapes say so, else interleaved
  std::string layout;                    // of slices; empty: as the bytes of the inputs tell, else contiguous
  SourceLine source;                     // line 0 where no file says it
};

// Stage-local layer numbers under `layers` ("decoder.layers") become global ones by arithmetic on the
// coordinates and on the model chunk (the virtual stage), from the total of the reference and from what is
// declared here: at most one of an even division (the default), of `first` and `last`, and of `per_stage`. It is
// never copied from a number that the training code computed, nor from what the ranks hold: a wrongly divided
// model must show up as missing or duplicated layers.
struct PipelineRule {
  std::string axis = "pp";
  std::string layers;
  std::optional<std::int64_t> first, last;   // layers on that stage; the other stages share the rest equally
  bool embedding = false, head = false;      // each counts as a layer, of the first and of the last chunk
  std::vector<std::int64_t> per_stage = {};  // in model order: by chunk, then stage
  bool global_names = false;                 // the stages' names are those of the whole model: `layers` is empty
  bool v_shaped = false;                     // with global names: every second chunk lies on the stages in reverse
  SourceLine source;
};

// Experts are numbered locally under `layers` ("mlp.experts.local_experts"); each coordinate of the axis holds
// an equal part of them, in order.
struct ExpertRule {
  std::string axis = "ep";
  std::string layers;
  SourceLine source;
};

// Two names of one parameter, as dotted suffixes: what a rank calls `name` is an occurrence of what the reference calls
// `of`. All occurrences hold the same value; the gradient of one backward is the sum over them.
struct TiedRule {
  std::string name, of;
  SourceLine source;
};

// A legal factor between what a program with these axes records and the logical value: recorded =
// factor * logical. The factor is a product of sizes over a product of sizes (`dp`, `dp*cp`, `1/dp`): of axes, and
// kMicrobatchCount. Declared, never fitted.
struct Factor {
  std::vector<std::string> numerator, denominator;  // names of axes, kMicrobatchCount, or numbers (factor.h)
  SourceLine source;
};

// Stands in a factor for how many micro-batches a rank runs in an iteration.
inline constexpr std::string_view kMicrobatchCount = "microbatches";

// A line of a draft that would excuse a wrong tensor and is therefore a comment: `#? loss_scale: tp`.
struct Guess {
  SourceLine source;
  std::string text;  // `loss_scale: tp`
};

// The arrangement of a trace's ranks, said when it is checked.
struct DeclaredAxes {
  std::string text;   // as in parse_mesh
  std::string where;  // who says it, for messages: `--axes`
};

using MicrobatchKey = std::pair<std::int32_t, std::int32_t>;  // iteration, micro-batch

struct ScaleOfMicrobatches {
  Factor loss_scale;
  std::set<MicrobatchKey> microbatches;
};

struct Annotations {
  std::string path;                // of the file that was asked for; empty when there is none
  std::vector<std::string> files;  // all that were read: `path`, and before it those that it includes
  // The rules of one pattern come one after the other. Of two files the including one's come later.
  std::vector<AnnotationRule> rules;
  MicrobatchRule microbatches;
  std::optional<PipelineRule> pipeline;
  std::optional<ExpertRule> experts;
  std::vector<TiedRule> tied;
  // The factor of the loss that backward starts from. It applies to the scalar `loss` and the output that is the loss,
  // to grad_output, grad_input and param_grad, but not to main_grad, which the framework has averaged by then.
  std::optional<Factor> loss_scale;
  // Another factor of some micro-batches, as the bytes say: what takes gradients by itself need not scale as the rest does.
  std::optional<ScaleOfMicrobatches> scale_of_some;
  std::optional<DeclaredAxes> axes;
  // Kinds of a parameter's tensors that the candidate may hold in a narrower dtype than the reference.
  std::set<Kind> narrower;
  // The axes that the rules were written for. One that is not here, and that a rule does not name, splits what shapes
  // say. Empty: all axes, so that one that a rule does not name replicates.
  std::vector<std::string> known_axes;
  std::vector<Guess> guesses;  // of all files
  bool of_program = false;     // no user chose them: they are the preset that the program names
};

// The key of ProgramWords::values that names `preset`.
inline constexpr std::string_view kPresetWord = "preset";

// Holds what the programs of a trace's ranks say of how they are parallel: the collector asks the frameworks.
struct ProgramWords {
  Annotations words;                          // only what the section `parallelism` of an annotation file may say
  std::map<std::string, std::string> values;  // by key of that section, its value as the trace has it, in JSON
  // The preset that fits the program, and values of its parameters. It says less than the other words, and those win.
  std::optional<AnnotationSource> preset;
  std::vector<std::string> notes;  // of keys that ranks disagree on, which are left out
};

// True when `pattern` fits `name`. Without a wildcard, the pattern is the name or what follows one of its
// dots. With one, the same component by component: `*`, `?` and `[..]` stand for what they do in a shell
// within one component, `**` for any number of components (none too). A `:member` or `#call` of the name counts only
// where the pattern has one.
bool matches(std::string_view pattern, std::string_view name);

// True for a pattern of nothing but wildcards, such as `**` or `[a-z]*`: it names no tensor.
bool is_all_wildcards(std::string_view pattern);

// The rule that places a tensor: of those that match the name and speak of the kind, the most specific.
// No wildcard beats a wildcard; then more characters outside `*`, `?` and `[..]`; then the later pattern.
// Within one pattern, a kind named itself beats one that follows. Null when there is none.
const AnnotationRule* rule_for(const Annotations& annotations, Kind kind, std::string_view name);

// The rules of other patterns, equally specific, that would place the tensor if theirs came later.
std::vector<const AnnotationRule*> contenders(const Annotations& annotations, Kind kind, std::string_view name);

// `gpt.yaml:14: 'linear_qkv': output`, to begin a message about what stands on that line of the rule.
std::string where(const AnnotationRule& rule, int line);

}  // namespace ttrace
