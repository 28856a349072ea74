// How far tensors were from what they may differ by, over the checks that a history has.
import { clip, el, lazyDetails, table as tableOf } from "./dom";
import { chooser, LinesView } from "./lines";
import { count, plural, short } from "./numbers";

interface Check {
  check: number;
  candidate: string;
  started: string;
  commit: string;
  verdict: string;
  compared: number;
  fail: number;
  missing: number;
  first_wrong: string;
  largest: number | null;
  largest_tensor: string;
}

interface Series {
  name: string;
  kind: string;
  ratios: [check: number, ratio: number | null, verdict: string][];
}

interface Grew {
  name: string;
  kind: string;
  candidate: string;
  check: number;
  before: number;
  after: number;
}

export interface History {
  file: string;
  tensors: number; // all; `series` has the most telling ones
  checks: Check[];
  series: Series[];
  grew: Grew[];
}

const ALL = "largest of all tensors";

export function historySection(history: History): { view: HTMLElement; draw: () => void } {
  const { checks, series, grew } = history;
  const categories = checks.map(({ check }) => String(check));
  const candidates = [...new Set(checks.map(({ candidate }) => candidate))];
  const nameOf = (candidate: string): string => candidate || "ratio";
  const chart = new LinesView();
  // Each candidate differs from the reference by an amount of its own: a curve each.
  const show = (label: string, ratios: Map<number, number | null>): void => {
    const lines = candidates.map((candidate) => ({
      name: nameOf(candidate),
      values: checks.map((check) => (check.candidate === candidate ? (ratios.get(check.check) ?? null) : null)),
    }));
    chart.show({ label: `${clip(label)}: error / allowed over ${plural(checks.length, "check")}`, x: "check", categories, lines, limit: { name: "allowed", value: 1 }, tableId: "history-table" });
  };
  const choose = (index: number): void => {
    const one = series[index - 1];
    if (one) show(`${one.name} ${one.kind}`, new Map(one.ratios.map(([check, ratio]) => [check, ratio])));
    else show(ALL, new Map(checks.map(({ check, largest }) => [check, largest])));
  };
  const grown = grew.map((one) => [clip(one.name), one.kind, one.candidate || "–", short(one.before), short(one.after), String(one.check), checks.find(({ check }) => check === one.check)?.commit.slice(0, 10) || "–"]);
  const view = el(
    "section",
    { id: "history", "aria-labelledby": "history-title" },
    el("h2", { id: "history-title" }, "Over the checks"),
    el("p", { class: "lead" }, "A ratio is error / allowed: above 1 it fails. An error on its way to the tolerance is seen before it fails."),
    chooser("series", "Tensor", [ALL, ...series.map(({ name, kind }) => `${name} ${kind}`)], choose),
    chart.view,
    history.tensors > series.length ? el("p", { class: "small" }, `To choose from: ${count(series.length)} of ${count(history.tensors)} tensors, those that grew and those with the largest ratios. `, el("code", {}, "ttrace history --tensor"), " shows the others.") : null,
    grown.length ? [el("h3", {}, "Grew to more than twice their largest ratio before"), tableOf(["tensor", "kind", "candidate", "before", "after", "check", "commit"], grown.slice(0, 50), { class: "numbers grew" })] : null,
    lazyDetails(plural(checks.length, "check"), () =>
      tableOf(
        ["check", "started", "commit", "candidate", "verdict", "largest", "tensor"],
        checks.map((check) => [
          String(check.check),
          check.started || "–",
          check.commit.slice(0, 10) || "–",
          check.candidate || "–",
          el("span", { class: `pill ${check.verdict}` }, check.verdict),
          short(check.largest),
          clip(check.verdict === "same" ? check.largest_tensor : `${check.first_wrong} (first wrong)`),
        ]),
        { class: "numbers checks" },
      ),
    ),
  );
  return { view, draw: () => choose(0) };
}
