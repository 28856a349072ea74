// The verdict, the root causes, and what was compared.
import type { Report, Root, Run, Table } from "./data";
import type { SourceLine } from "./report";
import { clip, code, commandLine, el, lazyDetails, table as tableOf } from "./dom";
import { meshPicture } from "./mesh";
import { count, plural, rankList, short } from "./numbers";

const ROOTS_SHOWN = 3;
const MOST_NOTES = 100;
const MOST_QUESTIONS = 3;

const STANDINGS: Record<string, string> = {
  confirmed: "confirmed: wrong by itself",
  found: "found by the second run: wrong by itself",
  moved: "moved: right by itself, its error came in",
};

// "; 100 % of the reference's tensors"
function coverageOf(report: Report): string {
  if (report.coverage === null || !report.reference) return "";
  const placed = report.placed_by_shape ? `, ${count(report.placed_by_shape)} placed by their shape` : "";
  return `; ${short(report.coverage * 100, 4)} % of the reference's tensors${placed}`;
}

function countsLine(report: Report): HTMLElement {
  const { counts } = report;
  const parts: [string, number][] = [
    ["pass", counts.pass],
    ["fail", counts.fail],
    ["untrusted", counts.untrusted],
    ["missing", counts.missing],
    ["not-seen", counts.not_seen],
    ["waived", report.waived],
  ];
  const total = parts.reduce((sum, [, value]) => sum + value, 0);
  const bar = el(
    "div",
    { class: "bar", role: "img", "aria-label": parts.map(([word, value]) => `${value} ${word}`).join(", ") },
    parts.filter(([, value]) => value).map(([word, value]) => el("span", { class: `part ${word}`, style: `flex:${Math.max(value / total, 0.004)}` })),
  );
  const words = parts.filter(([word, value]) => value || word === "pass" || word === "fail");
  return el(
    "div",
    { class: "counts" },
    bar,
    el("p", {}, `${count(counts.compared)} compared: `, words.map(([word, value], i) => [i ? ", " : "", el("span", { class: `dot ${word}` }), ` ${count(value)} ${word}`]), coverageOf(report)),
  );
}

// Where the root's module is computed and called, in the program's source.
export function sourceOf({ forward, call }: Root["source"]): HTMLElement | null {
  const at = (line: SourceLine) => el("code", {}, `${clip(line.file, 200)}:${line.line}`);
  if (!forward && !call) return null;
  return el("p", { class: "source" }, forward ? ["in ", at(forward)] : [], forward && call ? ", " : "", call ? ["called at ", at(call)] : []);
}

function ranksOf(table: Table, row: number): number[] {
  return JSON.parse(table.text("ranks", row) || "[]") as number[];
}

// The first in full, the sentence of a further one in a line: its tensor's page has it.
function rootCard(root: Root, number: number, table: Table, open: (row: number) => void): HTMLElement {
  const name = el("button", { type: "button", class: "link name" }, clip(root.name || "(about ranks)"));
  name.addEventListener("click", () => open(root.row));
  const ratio = table.number("ratio", root.row);
  const ranks = ranksOf(table, root.row);
  return el(
    "li",
    { class: number === 1 ? "root-card" : "root-card further" },
    el(
      "p",
      { class: "where" },
      el("span", { class: "number" }, String(number)),
      name,
      ` ${root.kind ?? ""}`,
      el("span", { class: "tags" },
        ratio === null ? null : el("span", { class: "tag" }, `${short(ratio)} × allowed`),
        ranks.length ? el("span", { class: "tag" }, clip(rankList(ranks), 40)) : null,
        root.diagnosis ? el("span", { class: "tag diagnosis" }, root.diagnosis) : null,
        root.standing ? el("span", { class: `tag standing ${root.standing}` }, STANDINGS[root.standing] ?? root.standing) : null,
      ),
    ),
    el("p", { class: "sentence" }, clip(root.sentence, 1200)),
    sourceOf(root.source),
  );
}

function rootsSection(report: Report, table: Table, open: (row: number) => void): HTMLElement | null {
  if (!report.roots.length) return null;
  const cards = report.roots.map((root, i) => rootCard(root, i + 1, table, open));
  const section = el("section", { id: "roots", "aria-labelledby": "roots-title" }, el("h2", { id: "roots-title" }, report.roots.length === 1 ? "The root cause" : `${count(report.roots.length + report.roots_left_out)} root causes`));
  section.append(el("ol", { class: "roots" }, cards.slice(0, ROOTS_SHOWN)));
  const rest = cards.slice(ROOTS_SHOWN);
  if (rest.length) section.append(lazyDetails(`${plural(rest.length, "more root cause")}`, () => el("ol", { class: "roots" }, rest)));
  if (report.roots_left_out) section.append(el("p", {}, `and ${count(report.roots_left_out)} more, which the JSON report lists`));
  if (report.wrong_in_second_run !== null) {
    section.append(el("p", {}, `Second run, modules given the reference's values: ${plural(report.wrong_in_second_run, "wrong tensor is", "wrong tensors are")} left.`));
  }
  return section;
}

function runCard(title: string, directory: string, run: Run | undefined, suspects: Set<number>): HTMLElement {
  const facts: [string, string | HTMLElement][] = [];
  const add = (name: string, value: string | undefined): void => {
    if (value) facts.push([name, value]);
  };
  if (directory) facts.push(["trace", code(directory)]);
  if (run?.command) facts.push(["command", code(clip(run.command, 400))]);
  add("started", run?.started);
  add("software", [run?.torch && `torch ${run.torch}`, run?.python && `Python ${run.python}`].filter(Boolean).join(", "));
  add("device", run?.device);
  add("computes in", run?.compute_dtype);
  add("commit", run?.git_commit);
  add("run", run?.run_id);
  if (run && run.world_size === 1) add("ranks", "1");
  return el(
    "div",
    { class: "card" },
    el("h3", {}, title),
    el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    run ? meshPicture(run, suspects) : null,
  );
}

function toleranceCard(report: Report): HTMLElement | null {
  const { tolerance } = report;
  if (!tolerance && !report.reference_run) return null;
  if (!tolerance) return el("div", { class: "card" }, el("h3", {}, "Tolerances"), el("p", {}, "None were given: all must be equal bit for bit."));
  const facts: [string, string | HTMLElement][] = [
    ["file", code(tolerance.file)],
    tolerance.perturbed_runs
      ? ["measured", `${plural(tolerance.tensors, "tensor")} from ${plural(tolerance.perturbed_runs, "perturbed run")} (${tolerance.estimator})`]
      : ["not measured", plural(tolerance.tensors, "tensor")],
    ["allowed", `${tolerance.margin} × what rounding does in ${tolerance.compute_dtype} (ε = ${short(tolerance.epsilon)})`],
  ];
  return el("div", { class: "card" }, el("h3", {}, "Tolerances"), el("dl", {}, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])), tolerance.notes.map((note) => el("p", { class: "small" }, note)));
}

function proofTable(report: Report): HTMLElement | null {
  if (!report.proof) return null;
  const rows = Object.entries(report.proof).map(([kind, proof]) => [
    kind,
    count(proof.compared),
    count(proof.proved),
    Object.entries(proof.others).map(([reason, tensors]) => `${tensors} ${reason}`).join(", "),
    proof.enough ? "yes" : "no",
  ]);
  return lazyDetails("What was proved of each kind", () => tableOf(["kind", "compared", "proved", "others", "enough"], rows, { class: "numbers" }));
}

// What to type now: the check's advice, or else the check again.
function nextSection(report: Report): HTMLElement | null {
  const section = el("section", { id: "next", "aria-labelledby": "next-title" });
  const next = adviceOf(report);
  const command = next ?? report.command;
  if (!command && !report.instead && !report.questions.length) return null;
  section.append(el("h2", { id: "next-title" }, command === report.command ? "Run it again" : "Next"));
  if (report.instead) section.append(el("p", {}, clip(report.instead, 1200)));
  for (const question of report.questions.slice(0, MOST_QUESTIONS)) section.append(el("p", { class: "question" }, clip(question.sentence, 1200)));
  if (report.questions.length > MOST_QUESTIONS) section.append(el("p", {}, `and ${plural(report.questions.length - MOST_QUESTIONS, "more question")}, which the JSON report lists`));
  if (command) section.append(commandLine(command));
  return section;
}

// The advice, unless that is to make a page.
function adviceOf(report: Report): string | null {
  return report.next?.startsWith(`${report.command} --html `) ? null : report.next;
}

// "1 rank", "4 ranks: tp=2, dp=2"
function ranksOfRun(run: Run): string {
  const axes = (run.factorings[0] ?? []).map((axis) => `${axis.name}=${axis.size}`).join(", ");
  return `${plural(run.world_size, "rank")}${axes ? ` (${axes})` : ""}`;
}

function shortProvenance(report: Report): string {
  const { reference_run: reference, candidate_run: candidate, tolerance } = report;
  const parts = [report.reference ? "What was compared" : "What was checked"];
  if (candidate) parts.push(reference ? `${ranksOfRun(candidate)} against ${ranksOfRun(reference)}` : ranksOfRun(candidate));
  if (tolerance) parts.push(tolerance.perturbed_runs ? `tolerances from ${plural(tolerance.perturbed_runs, "perturbed run")}` : "tolerances not measured");
  return parts.join(" · ");
}

function provenance(report: Report, suspects: Set<number>): HTMLElement {
  const steps = report.optimizer_steps;
  const element = el(
    "div",
    {},
    el(
      "div",
      { class: "cards" },
      report.reference ? runCard("Reference", report.reference, report.reference_run, new Set()) : null,
      runCard(report.reference ? "Candidate" : "Trace", report.candidate, report.candidate_run, suspects),
      toleranceCard(report),
    ),
  );
  if (steps) element.append(el("p", {}, `Optimizer steps checked: ${count(steps.parameters_checked)} of ${plural(steps.parameters, "parameter")} (${steps.optimizers.join(", ")}).`));
  const proof = proofTable(report);
  if (proof) element.append(proof);
  if (report.overrides.length) {
    const rows = report.overrides.map((one) => [one.where, clip(one.pattern), one.kind ?? "all", short(one.allowed), clip(one.reason), count(one.covered), count(one.excused)]);
    element.append(lazyDetails(plural(report.overrides.length, "override"), () => tableOf(["where", "pattern", "kind", "allowed", "reason", "covered", "excused"], rows)));
  }
  const others = [
    ...(report.configured_otherwise ?? []).map((one) => [`${clip(one.module)}.${one.attribute}`, clip(one.reference), clip(one.candidate)]),
    ...(report.surroundings ?? []).map((one) => [one.what, clip(one.reference), clip(one.candidate)]),
  ];
  if (others.length) element.append(lazyDetails("Where modules and surroundings differ", () => tableOf(["what", "reference", "candidate"], others)));
  if (adviceOf(report) && report.command) element.append(el("h3", {}, "Run it again"), commandLine(report.command));
  return element;
}

export function notesSection(report: Report): HTMLElement | null {
  if (!report.notes.length) return null;
  const notes = report.notes.slice(0, MOST_NOTES).map((note) => el("li", {}, clip(note, 1000)));
  return el("section", { id: "notes", "aria-labelledby": "notes-title" }, el("h2", { id: "notes-title" }, "Notes"), el("ul", {}, notes));
}

export function summary(report: Report, table: Table, open: (row: number) => void): HTMLElement[] {
  const first = report.roots[0];
  const suspects = new Set(first ? ranksOf(table, first.row) : []);
  const reservations = [report.partial, report.sketched, report.unmeasured, report.failed, report.unstepped].filter((text) => text !== undefined);
  const overview = el("section", { class: "overview" }, countsLine(report));
  // The headline has all of a verdict of `same`; the first root's card has its own sentence.
  if (report.verdict !== "same" && report.sentence !== first?.sentence) {
    overview.append(el("p", { class: "sentence" }, clip(report.sentence.replace(`${report.verdict}: `, ""), 1200)));
  }
  for (const text of reservations) overview.append(el("p", { class: "sentence reservation" }, clip(text, 1200)));
  const compared = el("section", { id: "compared", "aria-label": "What was compared" }, lazyDetails(shortProvenance(report), () => provenance(report, suspects)));
  return [overview, el("div", { class: "first" }, rootsSection(report, table, open), nextSection(report)), compared];
}
