// The page of `ttrace run`: its candidates, each with a report of its own.
import type { Candidate, RunIndex } from "./data";
import { clip, code, commandLine, el, lazyDetails, table as tableOf, type View } from "./dom";
import { historySection } from "./history";
import { count, plural } from "./numbers";
import { sourceOf } from "./summary";

const CARDS_SHOWN = 3;

// The candidate's name, which leads to its report where it has one.
const nameOf = (candidate: Candidate, at: number): string | HTMLElement =>
  candidate.problem === null ? el("a", { href: `#candidate/${at}` }, clip(candidate.name)) : clip(candidate.name);

const pillOf = (candidate: Candidate): HTMLElement => el("span", { class: `pill ${candidate.verdict}` }, candidate.verdict);

// What is wrong with candidates, those that differ first; null where all are the same.
function troubles(index: RunIndex): HTMLElement | null {
  const order = ["different", "could-not-look"];
  const cards = index.candidates
    .map((candidate, at) => ({ candidate, at }))
    .filter(({ candidate }) => candidate.verdict !== "same")
    .sort((a, b) => order.indexOf(a.candidate.verdict) - order.indexOf(b.candidate.verdict))
    .map(({ candidate, at }) =>
      el(
        "li",
        { class: "root-card" },
        el("p", { class: "where" }, el("span", { class: "name" }, nameOf(candidate, at)), " ", pillOf(candidate)),
        el("p", { class: "sentence" }, clip(candidate.problem ?? candidate.sentence ?? "", 1200)),
        candidate.source ? sourceOf(candidate.source) : null,
        candidate.next ? commandLine(candidate.next) : null,
      ),
    );
  if (!cards.length) return null;
  const rest = cards.slice(CARDS_SHOWN);
  return el(
    "section",
    { id: "troubles", "aria-label": "What is wrong" },
    el("ol", { class: "roots" }, cards.slice(0, CARDS_SHOWN)),
    rest.length ? lazyDetails(plural(rest.length, "more candidate"), () => el("ol", { class: "roots" }, rest)) : null,
  );
}

export function runPage(index: RunIndex): View {
  const rows = index.candidates.map((candidate, i) => {
    const { counts } = candidate;
    return [
      nameOf(candidate, i),
      pillOf(candidate),
      ...[counts?.compared, counts?.fail, counts?.missing, counts?.not_seen, counts?.untrusted, counts ? candidate.waived : undefined].map(
        (value) => (value === undefined ? "–" : count(value)),
      ),
    ];
  });
  const head = ["candidate", "verdict", "compared", "fail", "missing", "not seen", "untrusted", "waived"];
  const history = index.history ? historySection(index.history) : null;
  const elements = [
    index.problem ? el("p", { class: "sentence" }, index.problem) : null,
    troubles(index),
    el("section", { id: "candidates" }, el("h2", {}, "Candidates"), tableOf(head, rows, { class: "numbers candidates" })),
    history?.view,
    el("section", {}, el("h2", {}, "Their commands"), el("dl", {}, index.candidates.map(({ name, command }) => [el("dt", {}, clip(name)), el("dd", {}, code(clip(command, 400)))]))),
    index.notes.length ? el("section", {}, el("h2", {}, "Notes"), el("ul", {}, index.notes.map((note) => el("li", {}, clip(note, 1000))))) : null,
  ];
  return { element: el("div", {}, elements), draw: () => history?.draw() };
}
