// Curves over categories (checks, micro-steps, iterations) on a log scale, with their numbers as a table.
import { axisStyle, draw, type Option, tooltipStyle } from "./charts";
import { clip, el, lazyDetails, table as tableOf } from "./dom";
import { short } from "./numbers";
import { lineColour, type Theme } from "./palette";

export interface Line {
  name: string;
  values: (number | null)[]; // one for each category; null where there is none
}

export interface Lines {
  label: string; // what a screen reader says of the picture
  x: string;
  categories: string[];
  lines: Line[];
  limit?: { name: string; value: number }; // a horizontal line
  tableId: string;
}

function optionOf({ x, categories, lines, limit }: Lines, theme: Theme): Option {
  // A zero has no place on a log scale.
  const positive = (value: number | null): number | null => (value !== null && value > 0 ? value : null);
  const series = lines.map((line, i) => ({
    name: line.name,
    type: "line",
    symbolSize: categories.length > 40 ? 5 : 8,
    showAllSymbol: true,
    color: lineColour(i, theme.dark),
    lineStyle: { width: 1.8 },
    data: line.values.map(positive),
  }));
  const limits = limit
    ? [{ name: limit.name, type: "line", symbol: "none", color: theme.series[1], lineStyle: { width: 1.8, type: [6, 4] }, data: categories.map(() => limit.value) }]
    : [];
  return {
    animation: false,
    grid: { left: 64, right: 24, top: 40, bottom: 48 },
    legend: { type: "scroll", top: 0, left: 60, right: 24, textStyle: { color: theme.text }, itemWidth: 32 },
    tooltip: {
      ...tooltipStyle(theme),
      trigger: "axis",
      formatter: (items: { seriesName: string; name: string; value: number | null }[]) =>
        el(
          "div",
          { class: "tip" },
          el("strong", {}, `${x} ${items[0]?.name ?? ""}`),
          items.filter((item) => typeof item.value === "number").map((item) => [el("br"), `${clip(item.seriesName, 80)} ${short(item.value)}`]),
        ),
    },
    xAxis: { ...axisStyle(theme), type: "category", name: x, nameLocation: "middle", nameGap: 28, data: categories },
    yAxis: { ...axisStyle(theme), type: "log", axisLabel: { color: theme.faint, formatter: (value: number) => short(value, 2) } },
    series: [...series, ...limits],
  };
}

// A place for curves; `show` draws them there, once the place is in the document.
export class LinesView {
  readonly view: HTMLElement;
  private readonly place = el("div", { class: "chart", style: "height:300px", role: "img" });
  private readonly details = el("div");

  constructor() {
    this.view = el("div", {}, this.place, this.details);
  }

  show(lines: Lines): void {
    this.place.setAttribute("aria-label", lines.label);
    draw(this.place, (now) => optionOf(lines, now));
    this.details.replaceChildren(
      lazyDetails("These curves as a table", () =>
        el(
          "div",
          { class: "scroll" },
          tableOf(
            [lines.x, ...lines.lines.map((line) => clip(line.name, 80))],
            lines.categories.map((category, i) => [category, ...lines.lines.map((line) => short(line.values[i] ?? null, 4))]),
            { class: "numbers", id: lines.tableId },
          ),
        ),
      ),
    );
  }
}

// A choice of one of several, by their labels.
export function chooser(id: string, label: string, options: string[], choose: (index: number) => void): HTMLElement {
  const select = el("select", { id });
  options.forEach((option, i) => select.append(el("option", { value: i }, clip(option, 120))));
  select.addEventListener("change", () => choose(Number(select.value)));
  return el("p", {}, el("label", { for: id }, `${label} `), select);
}
