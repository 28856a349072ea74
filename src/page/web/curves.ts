// Error, estimate and allowed over the layers, for a module and kind (TTrace, figure 9, of the user's own run).
import { axisStyle, draw, tooltipStyle } from "./charts";
import { rootsOf } from "./cells";
import { findingAt, type Report, type Table } from "./data";
import { clip, el, lazyDetails, table as tableOf } from "./dom";
import { placeOf } from "./names";
import { short } from "./numbers";
import type { Theme } from "./palette";

interface Point {
  layer: number;
  row: number; // of the tensor with the largest error
  error: number | null;
  estimate: number | null;
  allowed: number | null;
  isRoot: boolean;
}

interface Curve {
  label: string;
  family: string;
  points: Map<number, Point>;
}

function curvesOf(report: Report, table: Table): Curve[] {
  const roots = rootsOf(report, table);
  const places = table.texts("name").map(placeOf);
  const curves = new Map<string, Curve>();
  for (let row = 0; row < table.rows; ++row) {
    const place = places[table.place("name", row)];
    if (!place || place.layer < 0) continue;
    const finding = findingAt(table, row);
    if (finding.error === null) continue;
    const label = `${place.family}.*.${place.module} ${finding.kind}`;
    const curve = curves.get(label) ?? { label, family: place.family, points: new Map() };
    curves.set(label, curve);
    const point = curve.points.get(place.layer);
    if (point && (point.error ?? 0) >= finding.error && !(roots.has(row) && !point.isRoot)) continue;
    const { error, estimate, allowed } = finding;
    curve.points.set(place.layer, { layer: place.layer, row, error, estimate, allowed, isRoot: roots.has(row) });
  }
  // Of what is equal in all layers there is nothing to see on a log scale.
  const hasErrors = (curve: Curve): boolean => [...curve.points.values()].some((point) => (point.error ?? 0) > 0);
  return [...curves.values()].filter((curve) => curve.points.size > 1 && hasErrors(curve));
}

// The curve to begin with: that of a root, or else of what layers return.
function firstOf(curves: Curve[]): Curve | undefined {
  return (
    curves.find((curve) => [...curve.points.values()].some((point) => point.isRoot)) ??
    curves.find((curve) => curve.label.endsWith("(layer) output")) ??
    curves.find((curve) => curve.label.endsWith(" output")) ??
    curves[0]
  );
}

const sorted = (curve: Curve): Point[] => [...curve.points.values()].sort((a, b) => a.layer - b.layer);

function optionOf(curve: Curve, theme: Theme): Record<string, unknown> {
  const points = sorted(curve);
  const positive = (value: number | null): number | null => (value !== null && value > 0 ? value : null);
  const line = (name: string, at: number, pick: (point: Point) => number | null, dash: boolean): unknown => ({
    name,
    type: "line",
    symbol: ["circle", "none", "none"][at],
    symbolSize: points.length > 40 ? 5 : 8,
    showAllSymbol: true,
    color: theme.series[at],
    lineStyle: { width: at === 0 ? 2.5 : 1.8, type: dash ? [6, 4] : "solid" },
    data: points.map((point) => ({
      value: [String(point.layer), positive(pick(point))],
      ...(at === 0 && point.isRoot ? { symbolSize: 14, itemStyle: { borderColor: theme.frame, borderWidth: 2.5 } } : {}),
    })),
  });
  return {
    animation: false,
    grid: { left: 64, right: 24, top: 40, bottom: 48 },
    legend: { top: 0, left: 60, textStyle: { color: theme.text }, itemWidth: 32 },
    tooltip: {
      ...tooltipStyle(theme),
      trigger: "axis",
      formatter: (items: { seriesName: string; value: [string, number | null] }[]) =>
        el(
          "div",
          { class: "tip" },
          el("strong", {}, `layer ${items[0]?.value[0] ?? ""}`),
          items.map((item) => [el("br"), `${item.seriesName} ${short(item.value[1])}`]),
        ),
    },
    xAxis: { ...axisStyle(theme), type: "category", name: "layer", nameLocation: "middle", nameGap: 28, data: points.map((point) => String(point.layer)) },
    yAxis: {
      ...axisStyle(theme),
      type: "log",
      axisLabel: { color: theme.faint, formatter: (value: number) => short(value, 2) },
    },
    series: [
      line("error", 0, (point) => point.error, false),
      line("allowed", 1, (point) => point.allowed, false),
      line("estimate", 2, (point) => point.estimate, true),
    ],
  };
}

export function curves(report: Report, table: Table, open: (row: number) => void): { view: HTMLElement; draw: () => void } | null {
  const all = curvesOf(report, table);
  let current = firstOf(all);
  if (!current) return null;
  const select = el("select", { id: "curve" });
  for (const curve of all) select.append(el("option", { value: curve.label, selected: curve === current }, clip(curve.label, 120)));
  const place = el("div", { class: "chart", style: "height:320px", role: "img" });
  const details = el("div");
  const view = el(
    "section",
    { id: "curves", "aria-labelledby": "curves-title" },
    el("h2", { id: "curves-title" }, "Over the layers"),
    el("p", { class: "lead" }, "Rounding grows smoothly from layer to layer, and the estimate with it. An error that is no rounding jumps."),
    el("p", {}, el("label", { for: "curve" }, "Module and kind "), select),
    place,
    details,
  );
  const show = (): void => {
    if (!current) return;
    const curve = current;
    place.setAttribute("aria-label", `error, estimate and allowed of ${clip(curve.label)} over ${curve.points.size} layers`);
    const chart = draw(place, (now) => optionOf(curve, now));
    chart.on("click", ({ dataIndex }) => {
      const point = sorted(curve)[dataIndex];
      if (point) open(point.row);
    });
    details.replaceChildren(
      lazyDetails("These curves as a table", () =>
        tableOf(
          ["layer", "error", "estimate", "allowed"],
          sorted(curve).map((point) => [String(point.layer), short(point.error, 4), short(point.estimate, 4), short(point.allowed, 4)]),
          { class: "numbers", id: "curve-table" },
        ),
      ),
    );
  };
  select.addEventListener("change", () => {
    current = all.find((curve) => curve.label === select.value);
    show();
  });
  return { view, draw: show };
}
