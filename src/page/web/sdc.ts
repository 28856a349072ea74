// The page of `ttrace sdc`: which calls computed wrongly, and what came of it ("Understanding silent data corruption in
// LLM training", figures 3 to 6, of the user's own node).
import { clip, code, commandLine, el, table as tableOf, type View } from "./dom";
import { chooser, LinesView } from "./lines";
import { count, indices, plural, short } from "./numbers";

interface Origin {
  name: string;
  kind: string;
  iteration: number;
  microbatch: number | null;
  rank: number;
  ranks: number;
  index: number[];
  healthy: number | null;
  suspect: number | null;
  healthy_bits: string;
  suspect_bits: string;
  differing: number;
  elements: number;
}

interface Submodule {
  type: string;
  direction: string;
  frequency_mean: number;
  frequency_max: number;
  severity_max: number;
  unbounded: number;
  microsteps: number;
  microsteps_hit: number;
  origins: number;
}

interface Step {
  iteration: number;
  gradient_noise: number | null;
  gradient_norm: number | null;
  parameter_drift: number | null;
  parameter_norm: number | null;
  gradient_nonfinite: number;
  parameter_nonfinite: number;
}

interface FaultyCopies {
  name: string;
  kind: string;
  iteration: number;
  ranks: number[];
  copies: number;
}

// A type of submodule that differs; a point is the number of the micro-step, frequency and severity.
interface Drawn {
  type: string;
  direction: string;
  ranks: { rank: number; points: [number, number, number | null][] }[];
  ranks_left_out: number;
}

export interface Sdc {
  verdict: string;
  healthy: string;
  suspect: string;
  command: string;
  tensors: number;
  differing_tensors: number;
  first: Origin | null;
  origins: Origin[];
  origins_left_out: number;
  submodules: Submodule[];
  steps: Step[];
  faulty_copies: FaultyCopies[];
  worst_noise_to_signal: number | null;
  worst_noise_is_infinite: boolean;
  lock_step: boolean;
  notes: string[];
  microsteps: [iteration: number, microbatch: number][];
  drawn: Drawn[];
}

// "14, 3": the bits that differ, counted from the lowest.
function flippedBits(origin: Origin): string {
  let difference = BigInt(origin.healthy_bits) ^ BigInt(origin.suspect_bits);
  const bits: number[] = [];
  for (let bit = 0; difference; ++bit, difference >>= 1n) if (difference & 1n) bits.unshift(bit);
  return bits.join(", ");
}

// Not-finite values are in the bits alone.
const valueOf = (value: number | null, bits: string): (string | HTMLElement)[] => [value === null ? "" : `${short(value, 6)} `, code(bits)];

const HEAD = ["tensor", "iteration", "micro-batch", "rank", "first wrong element", "healthy", "suspect", "bits", "elements"];

function originRow(origin: Origin): (string | (string | HTMLElement)[])[] {
  return [
    `${clip(origin.name)} ${origin.kind}`,
    String(origin.iteration),
    origin.microbatch === null ? "–" : String(origin.microbatch),
    `${origin.rank}${origin.ranks > 1 ? ` and ${origin.ranks - 1} more` : ""}`,
    indices(origin.index),
    valueOf(origin.healthy, origin.healthy_bits),
    valueOf(origin.suspect, origin.suspect_bits),
    flippedBits(origin),
    `${count(origin.differing)} of ${count(origin.elements)}`,
  ];
}

function originsSection(sdc: Sdc): HTMLElement | null {
  if (!sdc.first) return null;
  const section = el("section", { id: "origins", "aria-labelledby": "origins-title" });
  if (sdc.origins.length) {
    const total = sdc.origins.length + sdc.origins_left_out;
    section.append(
      el("h2", { id: "origins-title" }, `${plural(total, "call")} made an error out of equal inputs`),
      el("p", { class: "lead" }, "All that went in has the healthy run's bits, on every rank; what came out has not."),
      tableOf(HEAD, sdc.origins.map(originRow), { class: "numbers origins" }),
    );
    if (sdc.origins_left_out) section.append(el("p", {}, `and ${count(sdc.origins_left_out)} more, which the JSON report lists`));
  } else {
    section.append(
      el("h2", { id: "origins-title" }, "The first tensor that differs"),
      el("p", { class: "lead" }, "No call is seen to have made the error: what it was given was not recorded, or differs as well."),
      tableOf(HEAD, [originRow(sdc.first)], { class: "numbers origins" }),
    );
  }
  return section;
}

function submodulesSection(sdc: Sdc): { view: HTMLElement; draw: () => void } | null {
  if (!sdc.drawn.length) return null;
  const microsteps = sdc.microsteps.map(([iteration, microbatch]) => `${iteration}.${microbatch}`);
  const left = el("p", { class: "small" });
  const frequency = new LinesView();
  const severity = new LinesView();
  const show = (index: number): void => {
    const drawn = sdc.drawn[index];
    if (!drawn) return;
    const lines = (at: 1 | 2) =>
      drawn.ranks.map(({ rank, points }) => {
        const values: (number | null)[] = microsteps.map(() => (at === 1 ? 0 : null));
        for (const point of points) values[point[0]] = point[at];
        return { name: `rank ${rank}`, values };
      });
    const what = clip(`${drawn.type}, ${drawn.direction}`);
    frequency.show({ label: `share of elements that differ, of ${what}, over ${microsteps.length} micro-steps`, x: "micro-step", categories: microsteps, lines: lines(1), tableId: "frequency-table" });
    severity.show({ label: `mean relative difference, of ${what}, over ${microsteps.length} micro-steps`, x: "micro-step", categories: microsteps, lines: lines(2), tableId: "severity-table" });
    left.textContent = drawn.ranks_left_out ? `The ${drawn.ranks.length} ranks that differ most; ${count(drawn.ranks_left_out)} more differ.` : "";
  };
  const rows = sdc.submodules
    .filter((row) => row.microsteps_hit)
    .map((row) => [clip(row.type), row.direction, short(row.frequency_mean), short(row.frequency_max), short(row.severity_max), `${row.microsteps_hit} of ${row.microsteps}`, count(row.unbounded), count(row.origins)]);
  // The figure to begin with: of what made the error.
  const first = Math.max(0, sdc.drawn.findIndex(({ type, direction }) => sdc.submodules.some((row) => row.origins && row.type === type && row.direction === direction)));
  const choice = chooser("submodule", "Submodule and direction", sdc.drawn.map(({ type, direction }) => `${type}, ${direction}`), show);
  const select = choice.querySelector("select");
  if (select) select.value = String(first);
  const view = el(
    "section",
    { id: "submodules", "aria-labelledby": "submodules-title" },
    el("h2", { id: "submodules-title" }, "How often and how much submodules differ"),
    choice,
    el("div", { class: "pair" }, el("div", {}, el("h3", {}, "Frequency: share of elements with other bits"), frequency.view), el("div", {}, el("h3", {}, "Severity: mean of |suspect − healthy| / |healthy|"), severity.view)),
    left,
    tableOf(["submodule", "direction", "frequency", "largest", "severity", "micro-steps", "unbounded", "origins"], rows, { class: "numbers types" }),
  );
  return { view, draw: () => show(first) };
}

function stepsSection(sdc: Sdc): { view: HTMLElement; draw: () => void } | null {
  const ratio = (part: number | null, whole: number | null): number | null => (part === null || !whole ? null : part / whole);
  const noise = sdc.steps.map((step) => ratio(step.gradient_noise, step.gradient_norm));
  const drift = sdc.steps.map((step) => ratio(step.parameter_drift, step.parameter_norm));
  const lines = [
    { name: "gradients: |g′ − g| / |g|", values: noise },
    { name: "parameters: |p′ − p| / |p|", values: drift },
  ].filter((line) => line.values.some(Boolean));
  if (!lines.length && !sdc.worst_noise_is_infinite && !sdc.faulty_copies.length) return null;
  const worst = sdc.worst_noise_is_infinite ? "infinite" : short(sdc.worst_noise_to_signal, 4);
  const has_worst = sdc.worst_noise_is_infinite || sdc.worst_noise_to_signal !== null;
  const faulty = sdc.faulty_copies.slice(0, 50).map((copies) => [`${clip(copies.name)} ${copies.kind}`, String(copies.iteration), copies.ranks.join(", "), `${count(copies.ranks.length)} of ${count(copies.copies)}`]);
  const chart = new LinesView();
  const view = el(
    "section",
    { id: "steps", "aria-labelledby": "steps-title" },
    el("h2", { id: "steps-title" }, "What reaches the parameters"),
    el("p", { class: "lead" }, has_worst ? `Worst-case noise-to-signal of the gradients: ${worst}.` : null),
    lines.length ? chart.view : null,
    faulty.length ? [el("h3", {}, "Copies of one tensor that disagree"), tableOf(["tensor", "iteration", "wrong on ranks", "copies"], faulty, { class: "numbers copies" })] : null,
  );
  const categories = sdc.steps.map((step) => String(step.iteration));
  return { view, draw: () => lines.length && chart.show({ label: `noise of the gradients and drift of the parameters over ${categories.length} iterations`, x: "iteration", categories, lines, tableId: "steps-table" }) };
}

export function sdcPage(sdc: Sdc): View {
  const parts = [submodulesSection(sdc), stepsSection(sdc)].filter((part) => part !== null);
  const element = el(
    "div",
    {},
    originsSection(sdc),
    parts.map((part) => part.view),
    el("section", {}, el("h2", {}, "Run it again"), commandLine(sdc.command)),
    el(
      "section",
      { id: "compared" },
      el("h2", {}, "What was compared"),
      el("dl", {}, el("dt", {}, "healthy"), el("dd", {}, code(sdc.healthy)), el("dt", {}, "suspect"), el("dd", {}, code(sdc.suspect)), el("dt", {}, "tensors"), el("dd", {}, `${count(sdc.tensors)}, of which ${count(sdc.differing_tensors)} differ`)),
      sdc.notes.length ? [el("h3", {}, "Notes"), el("ul", { class: "notes" }, sdc.notes.map((note) => el("li", {}, clip(note, 1000))))] : null,
    ),
  );
  return { element, draw: () => parts.forEach((part) => part.draw()) };
}
