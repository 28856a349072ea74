// Findings, which the stages report. A difference between two traces is a value, never an exception.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"
#include "base/words.h"

namespace ttrace {

// The verdict of a tensor's finding: base/finding.cpp has the words of this and the following enumerations, and their
// meaning.
enum class Verdict : std::uint8_t { kPass, kFail, kUntrusted, kMissing, kNotSeen };
std::string_view name_of(Verdict verdict);
Vocabulary<Verdict> vocabulary_of(Verdict);

// The reason why a verdict is not `pass`.
enum class Reason : std::uint8_t {
  kNone,
  // fail; those of an optimizer's step come first, since they say why the tensor differs
  kStepCountDiffers,
  kOptionsDiffer,
  kStepDiffers,
  kCopyDiffers,
  kExceedsTolerance,
  kNotFinite,
  kIntegerDiffers,
  kReplicasDisagree,
  kRecomputeDiffers,
  kShapeMismatch,
  kTruncated,
  kDtypeMismatch,
  kOverlap,
  kDuplicateTensor,
  kDuplicateRank,
  kRoutingDiffers,
  kProductDiffers,
  kLookupDiffers,
  kSumDiffers,
  // missing
  kMissingInCandidate,
  kMissingInReference,
  kOmission,
  kMissingRank,
  kIncompleteRank,
  // not-seen
  kNotSeenInCandidate,
  kNotSeenInReference,
  kNotRecordedInCandidate,
  kNotRecordedInReference,
  // untrusted
  kNoTolerance,
  kAllZero,
  kNoise,
  kEmpty,
  kNotCheckable,
  kRerouted,
  kGuessedPlacement,
  kOwnNumbers,
  kUnknownLossScale,
  kNearUnmeasured,
  kPossibleJump,
  kOwnStatistics,
  kOtherNames,
  kChangedAfter,
  kOtherMicrobatches,
};
std::string_view name_of(Reason reason);
Vocabulary<Reason> vocabulary_of(Reason);

// Says how a difference was estimated from sketches (sketch/cells.h), and how sure it is. The bounds hold with the
// probability that src/sketch/error.h names.
struct SketchMeasure {
  std::int64_t cells = 0;
  std::int64_t cell_elements = 0, cell_rows = 0;  // of a whole cell
  std::int64_t width = 0;                         // of the tensor: its last dimension
  double widening = 1;                            // rel_err may be by this factor larger than the true one
  double scale_error = 0;                         // ... and scale_err by this much off
  double cell_square = 0;                         // the largest estimate of a cell's squared difference
  double cell_widening = 1;                       // its root may be by this factor too large
  std::vector<std::int64_t> worst_cell;           // where in the logical tensor that cell begins; empty: all equal
  std::vector<std::int64_t> worst_cell_size;
  std::int32_t worst_rank = -1;  // the candidate rank that holds it
};

// Holds what was measured between two tensors; nothing here judges it. Sums are over the logical tensor, in fp64, in a
// fixed order: the same bits for any number of threads. Elements that are NaN or Inf on either side are left out of the
// sums and counted.
struct Difference {
  std::int64_t elements = 0;
  std::int64_t differing = 0;  // elements whose values differ (NaN equals NaN)
  std::int64_t reference_nan = 0, reference_inf = 0;
  std::int64_t candidate_nan = 0, candidate_inf = 0;
  std::int64_t nonfinite_mismatch = 0;  // elements non-finite on one side only, or differently so
  double reference_square = 0;          // sum of squares
  double candidate_square = 0;
  double difference_square = 0;
  // <candidate - reference, reference>, summed by itself: as a difference of larger sums it would lose its digits.
  double along = 0;
  double reference_max_abs = 0;  // of the elements that are finite on both sides
  // The largest |reference - candidate|, exact at `worst_index`. Where both sides are at most fp32 wide, that element
  // was found in fp32; of several it is the first in the logical tensor.
  double max_abs = 0;
  std::vector<std::int64_t> worst_index;  // its logical index; empty when no finite elements differ
  std::int32_t worst_rank = -1;           // the candidate rank that holds it
  std::vector<std::int64_t> worst_local_index;
  double worst_reference = 0, worst_candidate = 0;
  // A row is what the last dimension holds at one index of the others. A tensor has rows where there are two or more of
  // them, of two or more elements, and where it is a floating-point one; `rows` is 0 where not.
  std::int64_t rows = 0;
  double row_square = 0;        // the largest sum of squared differences of a row
  std::int64_t worst_row = -1;  // of the rows that have it the first, in row-major order; -1 where no row differs
  // Each candidate rank's share of difference_square and of nonfinite_mismatch. Where an element has several terms, its
  // share is that of the first one's rank.
  std::map<std::int32_t, double> square_by_rank;
  std::map<std::int32_t, std::int64_t> nonfinite_by_rank;
  // Where the candidate's replicas disagree, everything above is measured on the replica that differs most from the
  // reference.
  double replica_square = 0;                // largest ||replica_k - replica_0||^2 over the other replicas
  std::vector<std::int32_t> replica_ranks;  // ranks whose replica differs in value from replica 0
  double reference_replica_square = 0;      // the same within the reference
  std::vector<std::int32_t> reference_replica_ranks;

  // Is set where a side was recorded as a sketch. Then the norms are exact, but of a sum of terms, and
  // `difference_square` is an estimate; counts of NaN are of NaN or Inf; `differing` is 0 where the tensors are equal
  // bit for bit, and else all elements; `max_abs` and rows are not known.
  std::optional<SketchMeasure> sketch;

  // ||reference - candidate||_F / ||reference||_F (papers: TTrace, section 2.3.2). 0 when both norms are
  // 0; infinity when only the reference's is.
  double rel_err() const;
  // <candidate - reference, reference> / ||reference||^2: by how much the candidate is the reference's multiple.
  // Rounding has no direction, and leaves this near 0 where rel_err is large. 0 where nothing differs, infinity where
  // the sums cannot tell.
  double scale_err() const;
  // Returns what `scale_err` leaves of rel_err: sqrt(rel_err^2 - scale_err^2).
  double residual_err() const;
  // The largest norm of a row's difference over the root mean square of the reference's row norms; 0 without rows.
  double row_err() const;
  // max_abs over the root mean square of the reference's elements.
  double element_err() const;
  // Returns, of sketches, the largest norm of a cell's difference over that of a cell of the reference's root mean
  // square.
  double cell_err() const;
  // The largest ||replica_k - replica_0|| / ||candidate||.
  double replica_rel_err() const;
  // 1 - cos(reference, candidate), computed as (||A-B||^2 - (||A||-||B||)^2) / (2 ||A|| ||B||), because the direct form
  // would lose all digits.
  double one_minus_cosine() const;
  // The least-squares factor f of candidate = f * reference, and the norm of what it leaves over, relative to
  // ||candidate||.
  double uniform_factor() const;
  double uniform_factor_residual() const;
};

// A measure of a difference that is held against a tolerance of its own.
enum class Statistic : std::uint8_t { kNorm, kScale, kRow, kElement, kCoherence, kCell };
std::string_view name_of(Statistic statistic);
Vocabulary<Statistic> vocabulary_of(Statistic);

// A statistic beside the norm that was judged.
struct JudgedStatistic {
  Statistic statistic = Statistic::kScale;
  double measured = 0;  // signed where it is the scale, of one tensor or of several
  double allowed = 0;   // of its magnitude
};

struct Finding {
  TensorId id;  // canonical; for a finding about a rank (`missing-rank`) the name is empty
  Verdict verdict = Verdict::kPass;
  Reason reason = Reason::kNone;
  std::string message;                      // one line, complete in itself: what, where, exact ranges and ranks
  std::vector<std::int32_t> ranks;          // candidate ranks that hold the error
  std::optional<Difference> difference;     // when compared
  std::optional<double> allowed;            // of rel_err, when a tolerance applied
  std::vector<JudgedStatistic> statistics;  // the others that a tolerance applied to
  Statistic exceeded = Statistic::kNorm;    // the one that exceeds its tolerance, where that is the reason
  bool floating = false;                    // compared by value, as floating-point numbers
  std::optional<std::size_t> by_override;   // index of the tolerance file's override that says what is allowed
  bool excused = false;                     // what was estimated, without that override, would not let it pass
  bool guessed = false;                     // its place rests on a guess (`LogicalTensor::guessed`)
  bool whole_in_part = false;               // a loss of which each rank has a part whole, and a term of the rest
  bool light = false;                       // of a light iteration, which proves nothing (`LogicalTensor::light`)
  std::uint64_t order = 0;                  // position in the reference's execution (the candidate's, if only there)
  std::int32_t cycle = 0;                   // of the iteration (judge/cycles.h)
  bool only_in_candidate = false;           // then `order` says nothing about the reference's tensors
};

// The phases of one cycle of an iteration (judge/cycles.h), in the order in which the results of one enter the next: an
// error in one phase explains errors in later ones.
enum class Phase : std::uint8_t {
  kParameters,
  kForward,
  kLoss,
  kRecompute,  // runs within backward, before the gradients that it feeds
  kBackward,
  kParamGrad,
  kMainGrad,
  kStepScalar,
  kDelta,
  kAfter,
};

Phase phase_of(const TensorId& id);

// True for a scalar of a micro-batch, or one whose name ends in `loss`.
bool is_loss(const TensorId& id);

// True for what `backward()` was called on, and for no number that the program records itself.
bool is_loss_of_backward(const TensorId& id);

// True when the tensor differs, or is not there, and that is not in question.
bool is_wrong(const Finding& finding);

// True where the tensor differs, or is missing, and may be right all the same: what would tell was not said.
bool is_in_question(const Finding& finding);

// True where an optimizer's step is wrong by itself, whatever the gradients are.
bool is_of_step(const Finding& finding);

// Measured over allowed of the statistic that exceeds its tolerance, or else of rel_err. Absent where nothing was
// allowed or measured, and where the ratio or the tensor is not finite.
std::optional<double> ratio_of(const Finding& finding);

// Execution order of findings: findings about ranks; then by iteration; then, before all others, what makes it another
// one; then by cycle; then initial parameters, forward tensors, losses, recomputed forward tensors, backward tensors,
// parameter gradients, main gradients, scalars of the step, parameter deltas, parameters after; within each by `order`,
// tensors that only the candidate holds last, then by identity. Never by size: the residual path can hide a large error
// one layer later (TTrace, table 1, bug 13).
bool executes_before(const Finding& a, const Finding& b);

}  // namespace ttrace
