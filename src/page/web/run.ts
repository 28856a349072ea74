// The page of `ttrace run`: its candidates, each with a report of its own.
import type { RunIndex } from "./data";
import { clip, code, el, table as tableOf, type View } from "./dom";
import { historySection } from "./history";
import { count } from "./numbers";

export function runPage(index: RunIndex): View {
  const rows = index.candidates.map((candidate, i) => {
    const { counts } = candidate;
    const name = clip(candidate.name);
    return [
      candidate.problem === null ? el("a", { href: `#candidate/${i}` }, name) : name,
      el("span", { class: `pill ${candidate.verdict}` }, candidate.verdict),
      ...[counts?.compared, counts?.fail, counts?.missing, counts?.not_seen, counts?.untrusted, counts ? candidate.waived : undefined].map(
        (value) => (value === undefined ? "–" : count(value)),
      ),
      clip(candidate.problem ?? candidate.sentence ?? "", 600),
    ];
  });
  const head = ["candidate", "verdict", "compared", "fail", "missing", "not seen", "untrusted", "waived", "what"];
  const elements = [
    el("section", { id: "candidates" }, el("h2", {}, "Candidates"), tableOf(head, rows, { class: "numbers candidates" })),
    el("section", {}, el("h2", {}, "Their commands"), el("dl", {}, index.candidates.map(({ name, command }) => [el("dt", {}, clip(name)), el("dd", {}, code(clip(command, 400)))]))),
  ];
  if (index.problem) elements.unshift(el("p", { class: "sentence" }, index.problem));
  if (index.notes.length) elements.push(el("section", {}, el("h2", {}, "Notes"), el("ul", {}, index.notes.map((note) => el("li", {}, clip(note, 1000))))));
  const history = index.history ? historySection(index.history) : null;
  if (history) elements.splice(index.problem ? 2 : 1, 0, history.view);
  return { element: el("div", {}, elements), draw: () => history?.draw() };
}
