// The report's JSON: made by tools/report_types, not to be edited.

export type RunVerdict =
  | "same" // the candidate computes what the reference computes
  | "different" // something failed or is missing, or a difference has no tolerance
  | "could-not-look" // too little was compared or proved to say either

export type Kind =
  | "input" // a tensor that a module was given
  | "output" // a tensor that a module returned
  | "grad_output" // the gradient of the loss with respect to a module's output
  | "grad_input" // the gradient of the loss with respect to a module's input
  | "param" // a parameter before the iteration
  | "param_grad" // what one micro-batch's backward adds to the parameter's gradient
  | "main_grad" // the gradient that the optimizer uses: accumulated, reduced, not yet clipped
  | "param_delta" // what the optimizer's steps of the iteration added, to the fp32 master where there is one
  | "param_after" // the parameter as the next iteration sees it
  | "scalar" // loss, grad_norm, token counts: the name says which
  | "master" // the value that the optimizer updates, where it is not the parameter itself
  | "exp_avg" // Adam's first moment before the step
  | "exp_avg_sq" // Adam's second moment before the step
  | "max_exp_avg_sq" // the largest second moments so far (amsgrad)
  | "momentum_buffer" // the momentum of SGD before the step
  | "step_grad" // the gradient that the optimizer was given, where it is not main_grad times one number
  | "buffer" // what a module keeps beside its parameters, before the iteration
  | "buffer_after" // the same, or a model that no optimizer updates, as the next iteration sees it

export type Pass =
  | "forward" // the forward pass
  | "recompute" // the forward that activation checkpointing runs a second time

export type Verdict =
  | "pass" // equal, or closer than is allowed
  | "fail" // differs by more than is allowed, or is not well formed
  | "untrusted" // compared, but proves little; the reason says why
  | "missing" // one side holds it, the other does not, or holds it in part
  | "not-seen" // the same, and that side's recorder said that it could not record it

export type Reason =
  | "none" // pass: nothing is wrong
  // fail: the optimizer steps another number of times in the iteration, which goes on for more or fewer micro-batches
  | "step-count-differs"
  | "options-differ" // fail: the optimizer's options, or the optimizer, are not the reference's
  | "step-differs" // fail: not the step that the run's own gradients, options and state give, or the reference's
  | "copy-differs" // fail: the parameter is not what the optimizer's step made of it, rounded
  | "exceeds-tolerance" // fail: differs by more than is allowed
  | "not-finite" // fail: NaN or Inf on one side only, or more on one side
  | "integer-differs" // fail: integers and bool are compared exactly
  | "replicas-disagree" // fail: ranks that hold the same elements have other values
  | "recompute-differs" // fail: the recomputed forward is not the first forward
  | "shape-mismatch" // fail: the merged shape is not the reference's
  | "truncated" // fail: a rank is given the beginnings of its samples alone, and what they lack is no padding
  // fail: a parameter is floating on one side and integer on the other, or narrower than the reference's; untrusted: a
  // mask is bool on one side and floating on the other
  | "dtype-mismatch"
  | "overlap" // fail: elements are filled twice without a declaration
  | "duplicate-tensor" // fail: one rank holds the same canonical tensor twice
  | "duplicate-rank" // fail: a rank is there twice
  | "routing-differs" // fail: tokens went to other experts, and it was no near tie
  | "product-differs" // fail: not the product of its own recorded operands (`abft`)
  | "lookup-differs" // fail: not the rows of the weight that the ids name (`abft`)
  | "sum-differs" // fail: not the sum of its recorded terms (`abft`)
  | "missing-in-candidate" // missing: the candidate has no such tensor
  | "missing-in-reference" // missing: the reference has no such tensor
  | "omission" // missing: some elements, or some replicas, are not there
  | "missing-rank" // missing: a rank has no file
  | "incomplete-rank" // missing: the rank's file has no completion mark
  | "not-seen-in-candidate" // not-seen: the candidate's recorder said that it could not record it
  | "not-seen-in-reference" // not-seen: the reference's recorder said that it could not record it
  | "not-recorded-in-candidate" // not-seen: the candidate's trace holds less by design
  | "not-recorded-in-reference" // not-seen: the reference's trace holds less by design
  | "no-tolerance" // untrusted: it differs, and no tolerance says by how much it may
  | "all-zero" // untrusted: both sides are zero
  | "noise" // untrusted: the tolerance is 1 or more, and no more than the magnitude could be checked
  | "empty" // untrusted: no elements, or none that is finite on both sides
  | "not-checkable" // untrusted: no relation could be tested (`abft`)
  | "re-routed" // untrusted: differs by no more than the tokens that a near tie sent elsewhere can explain
  // untrusted: differs where its shape places it, and neither annotations nor the program nor bytes say that it lies
  // there
  | "guessed-placement"
  // untrusted: follows from random numbers that were drawn, or from statistics of a batch that were taken, by each rank
  // for itself
  | "own-numbers"
  // untrusted: a multiple of the reference's, as a loss scale makes it that was not said; what steps take is right
  | "unknown-loss-scale"
  // untrusted: exceeds by little a tolerance that was not measured, or that of few numbers which no perturbed run
  // moved, and nothing explains the error
  | "near-unmeasured"
  // untrusted: of a light iteration, in which a gradient differs in one channel alone, as where rounding moves an
  // activation over a kink
  | "possible-jump"
  // untrusted: running statistics that each rank takes of its own samples, by the class of the module
  | "own-statistics"
  // missing or untrusted: by its name alone, where the two sides share hardly a name, or names are numbers by the order
  // of steps
  | "other-names"
  | "changed-after" // untrusted: differs between ranks where the program changes parameters after their step
  // untrusted: of a micro-batch that the other side, which cuts the batch otherwise, does not run, or of a module that
  // one side calls more often where training is right
  | "other-microbatches"

export type StatisticName =
  | "rel_err" // the norm of the difference over that of the reference
  | "scale" // by how much the candidate is a multiple of the reference
  | "row" // the largest norm of a row's difference, in units of the mean row
  | "element" // the largest difference of an element, in units of the mean element
  | "coherence" // the scale that several tensors have in common; it stands with the first tensor of its group
  | "cell" // the largest norm of a cell's difference, of sketches, in place of row and element

export type Cause =
  | "missing" // is not there
  | "not-finite" // holds NaN or Inf (which element first, and whether what it was computed from does)
  | "never-updated" // is as it was: the optimizer left it so, or the program a model that no optimizer updates
  | "zero" // is zero
  | "unreduced" // lies on its ranks as terms of a sum that was never made, or values that were never averaged
  // is the reference's times one number (which may be the size of an axis, of two, the number of micro-batches, or one
  // over it)
  | "uniform-factor"
  | "stale" // is that of another micro-batch or iteration
  // is another tensor of the micro-batch, another parameter's, or in one rank's part that of another rank
  | "other-tensor"
  | "permuted-blocks" // has equal blocks of a dimension in another order (swapped, zigzag, interleaved, ...)
  // lies in memory as if two dimensions were swapped, in whole or on each rank; or is what a linear's or an attention's
  // backward makes of an operand read so
  | "reinterpreted"
  // is a main gradient that lacks, or has twice, a micro-batch's gradient, or in one rank's part that of another rank;
  // or a loss over one rank's part alone
  | "missing-contribution"
  | "stale-operand" // is a weight's gradient, computed with the input of another module or micro-batch
  | "other-rows" // has some rows of others
  // is the reference's times a number each in the parts of some ranks, be it with one more added, or in what they made
  // of each other's part of the input
  | "rank-factor"
  | "coarser-precision" // is rounded to a narrower dtype than it, or the reference, is stored in
  | "region" // is wrong in one part of a dimension, in some ranks' parts or in some ranks' copies, and right elsewhere
  // is a main gradient that was summed over ranks after each micro-batch, with all that was accumulated before
  | "accumulated-again"
  // is a main gradient that was added onto what an earlier iteration, or a micro-batch that the reference leaves out,
  // had left in its memory
  | "left-over"
  // is an initial parameter, like most of them drawn from another seed: `--inject-params` or `--consistent-init`
  | "other-initialisation"
  | "optimizer-step" // is what a wrong step of the optimizer made, or a wrong copy of that; the message says how
  // is a loss, or the gradient of one, that is the mean of means of ranks or of micro-batches, of which some hold more
  // elements, labels that count, or weight, than others
  | "mean-of-means"
  // is computed by a module that is configured otherwise than the reference's (eps, p, scale, ...)
  | "configured-otherwise"
  // comes after random numbers that the reference does not draw there, or that are others than in the first forward or
  // on ranks whose copies must be equal
  | "drawn-otherwise"
  // is a loss, or the gradient of one, that is made otherwise of the same scores: divided by another number, of other
  // labels or rows that count or with other weights of them, at another temperature, with another part of a further
  // loss, of more scores, or without what a softmax's backward takes off
  | "other-loss"
  | "other-norm" // is a norm of gradients that lacks some of them, counts some twice, or is another norm of all
  // is a main gradient that was reduced along another axis than its own, over other parameters of its kind
  | "other-group"
  // is made by each rank of its own samples, or its own part of a row, alone, where the reference takes all:
  // standardised by their mean and deviation, normalised, or a loss that is a ratio of sums
  | "own-samples"
  // is a moving average that follows its parameter otherwise: as that was before its step, or by another decay; or
  // running statistics that follow others of the same samples
  | "other-average"
  // is a function of the reference's value, or the reference's one of it: a softmax, an activation, a logarithm that is
  // applied once more or once less
  | "other-function"

export type Standing =
  | "confirmed" // the module is wrong by itself
  | "found" // wrong by itself, and before in the wake of another
  | "moved" // right by itself, its error came in

// Tensors by verdict; each counts once, by the worst of its findings.
export interface Counts {
  compared: number; // pass + fail + untrusted
  pass: number;
  fail: number;
  untrusted: number;
  missing: number;
  not_seen: number;
}

// Tensors of one implementation that the other has no counterpart of.
export interface LoneTensors {
  tensors: number; // how many
  names: string[]; // with `#` for numbers: each once for all layers
}

// Tensors of two programs that correspond to nothing in the other.
export interface WithoutCounterpart {
  reference: LoneTensors;
  candidate: LoneTensors;
}

// How many floating-point tensors of a kind prove something.
export interface Proof {
  compared: number; // floating-point tensors
  proved: number; // of these
  others: Record<string, number>; // those that prove nothing, by reason, `override` or `waiver`
  enough: boolean;
}

// Families of parameters of whose gradients nothing but zeros was compared.
export interface ZeroGradients {
  families: string[]; // with `#` for numbers: each once for all layers
  first: number; // iteration that was compared
  last: number; // iteration that was compared
}

// An override of the tolerance file, and what it did.
export interface Override {
  where: string; // file and line
  pattern: string; // of the tensors' names
  kind: Kind | null; // null: all
  allowed: number | null;
  reason: string;
  covered: number; // tensors that it gave their tolerance
  excused: number; // of these, those that are not wrong by it alone
}

// A statistic beside rel_err, and what it may be.
export interface Statistic {
  measured: number | null;
  allowed: number | null;
}

// The element of a tensor that differs most.
export interface Worst {
  index: number[]; // in the logical tensor
  rank: number; // of the candidate, which holds it
  local_index: number[]; // there
  reference: number | null;
  candidate: number | null;
  abs: number | null;
}

// A line of the program.
export interface SourceLine {
  file: string; // relative to the top of the program's repository, where it lies in one
  line: number;
}

// Where a module is in the program's source, as far as the trace says it.
export interface Source {
  forward: SourceLine | null; // of the module's class
  call: SourceLine | null; // of the module
  variable: string | null; // by which the program holds the model, where it has several
}

// The first wrong finding, with what is known of it as a root.
export interface FirstWrong {
  name: string; // empty: about ranks
  kind: Kind | null;
  iteration: number | null;
  microbatch: number | null;
  pass: Pass | null;
  verdict: Verdict;
  reason: Reason;
  rel_err: number | null; // null: not compared, or not finite
  allowed: number | null; // of rel_err
  ratio: number | null; // measured over allowed, of the statistic that exceeds its tolerance or else of rel_err
  exceeded: StatisticName | null; // that statistic; null: the reason is another
  statistics: Record<string, Statistic>; // those beside rel_err that were judged
  worst: Worst | null;
  ranks: number[]; // of the candidate, that hold the error
  message: string; // complete in itself: what, where, exact ranges and ranks, numbers that are not finite
  module?: string; // at which it was seen
  repeated?: number; // in how many further micro-batches and iterations it is a root as well
  alike?: string[]; // names of further roots with the same diagnosis, which are not listed by themselves
  explained?: number; // wrong tensors that follow from it, as far as names and order of execution tell
  diagnosis?: Cause | null; // null: nothing known explains the error, or it was not looked into
  diagnosis_residual?: number | null; // ‖candidate - expected‖ / ‖expected‖ of the diagnosis
  sentence?: string;
  standing?: Standing | null; // null: there was no second run
  source?: Source; // of the module
}

// A wrong tensor that nothing wrong explains, and what its error looks like.
export interface Root {
  name: string; // empty: about ranks
  kind: Kind | null;
  iteration: number | null;
  microbatch: number | null;
  pass: Pass | null;
  module: string; // at which it was seen
  repeated: number; // in how many further micro-batches and iterations it is a root as well
  alike: string[]; // names of further roots with the same diagnosis, which are not listed by themselves
  explained: number; // wrong tensors that follow from it, as far as names and order of execution tell
  diagnosis: Cause | null; // null: nothing known explains the error, or it was not looked into
  diagnosis_residual: number | null; // ‖candidate - expected‖ / ‖expected‖ of the diagnosis
  sentence: string;
  standing: Standing | null; // null: there was no second run
  source: Source; // of the module
}

// What would have to be said before tensors that differ can be called wrong.
export interface Question {
  name: string; // empty: about ranks
  kind: Kind | null;
  iteration: number | null;
  microbatch: number | null;
  pass: Pass | null;
  tensors: number; // that it is about; this is the first of them
  sentence: string; // what differs, what is not known, and what to write or to do
}

// An attribute of modules that the candidate has configured otherwise than the reference.
export interface OtherAttribute {
  module: string; // the first of them
  modules: number; // how many
  attribute: string; // behind a dot, that of an object which the module has
  reference: string; // as Python writes it
  candidate: string; // as Python writes it
  ranks: number[]; // of the candidate that have it so; empty: all that have the module
}

// What surrounds the runs otherwise: a version, a setting, the environment, the command.
export interface OtherSurrounding {
  what: string;
  reference: string; // empty: not there
  candidate: string; // empty: not there
}

// What was checked of the optimizer's steps.
export interface OptimizerSteps {
  trained: number; // parameters that want gradients, used or not; 0: the trace does not say
  parameters: number; // that have updates
  parameters_checked: number; // all of whose updates were checked
  updates: number;
  updates_checked: number;
  copies_checked: number; // of what the optimizer made, to the parameter
  iterations: number[]; // with a checked update
  optimizers: string[]; // the classes that made those
  worst: number | null; // the largest error of a right update, in units of what rounding explains
  updates_regressed: number; // checked by regression on the reference's
  regressed_optimizers: string[]; // the classes that made those
  worst_regressed: number | null; // the largest error of a right one, in units of what correct runs explain
  not_checkable: Record<string, number>; // why updates were not checked, and how many
  untrained: string[]; // those of the parameters that want gradients, and why
}

// A tensor, its verdict and its reason; or, without a name, a finding about ranks.
export interface Finding {
  name: string; // empty: about ranks
  kind: Kind | null;
  iteration: number | null;
  microbatch: number | null;
  pass: Pass | null;
  verdict: Verdict;
  reason: Reason;
  rel_err: number | null; // null: not compared, or not finite
  allowed: number | null; // of rel_err
  ratio: number | null; // measured over allowed, of the statistic that exceeds its tolerance or else of rel_err
  exceeded: StatisticName | null; // that statistic; null: the reason is another
  statistics: Record<string, Statistic>; // those beside rel_err that were judged
  worst: Worst | null;
  ranks: number[]; // of the candidate, that hold the error
  message: string; // complete in itself: what, where, exact ranges and ranks, numbers that are not finite
}

// The report of ttrace check, localize and abft.
export interface Report {
  schema: "ttrace-report/5";
  verdict: RunVerdict;
  strict: boolean; // untrusted counts as failed, and not-seen as could-not-look
  reference: string; // its directory
  candidate: string; // its directory
  counts: Counts;
  tests: number; // statistics that were held against a tolerance
  // not compared: recomputed in the reference only, declared local, or accepted by a waiver of `ttrace run`
  waived: number;
  placed_by_shape: number; // of those compared: no rule placed them, their shapes did
  // share of the reference's tensors that were compared; of `abft`: of the trace's that were checked
  coverage: number | null;
  without_counterpart?: WithoutCounterpart; // absent: no correspondence file
  proof: Record<string, Proof> | null; // by kind; null: `abft`
  // parameters of which nothing but gradients of zero was compared, which proves nothing; absent: none
  zero_gradients?: ZeroGradients;
  // parameters of whose steps nothing is proved: by `-t default`, as no rule is known for them, or as no optimizer of
  // the program has them, and the parameters after it may differ by as much as they changed; absent: none
  unproved_steps?: string[];
  unstepped?: string; // optimizers that took no step in what was recorded, though others did; absent: none
  overrides: Override[]; // of the tolerance file
  // of a trace that holds less by design (`import --partial`): which, and what is not in it; absent: neither does
  partial?: string;
  sketched?: string; // of tensors that were judged by their sketches: how many, and what these cannot show
  failed?: string; // how the candidate's job failed, after it had recorded all; absent: it did not
  unmeasured?: string; // of `-t default`: what the tolerances are; absent: measured, or none
  // of the tolerances, where it is another than that of `estimate-tolerance` by default; absent: it is not
  margin?: number | null;
  instead: string | null; // what the check lacks (-t, -a)
  next: string | null; // the command that makes what it lacks, or looks closer at what differs
  first_wrong: FirstWrong | null; // the first in order of execution that is fail or missing
  root_cause: FirstWrong | null; // deprecated: the same as `first_wrong`, which is no root cause
  roots: Root[]; // wrong tensors that nothing wrong explains
  questions: Question[]; // about tensors that differ where a placement was guessed, or by numbers of each rank's own
  configured_otherwise?: OtherAttribute[]; // attributes of modules, where they may not differ as they do; absent: none
  surroundings?: OtherSurrounding[]; // of the runs, as far as both traces say them, where they differ; absent: nowhere
  wrong_in_second_run: number | null; // wrong tensors of a second run; null: there was none
  optimizer_steps?: OptimizerSteps; // what was checked of them; absent: none recorded
  findings: Finding[]; // all but pass, in order of execution
  notes: string[];
}
