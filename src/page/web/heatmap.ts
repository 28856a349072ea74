// The heat maps: error / allowed of every tensor, at a glance.
import { axisStyle, type Chart, draw, tooltipStyle } from "./charts";
import { type Cell, cellKey, type Column, describe, type Grid, gridsOf, titleOf } from "./cells";
import { isWrong, type Report, type Table } from "./data";
import { announce, clip, el, lazyDetails } from "./dom";
import { shortLabel } from "./names";
import { DECADES, ratioColour, theme, type Theme } from "./palette";
import { short } from "./numbers";

const LABELS = 204; // pixels below the columns, for their labels
const OUTSIDE_LABELS = 84;
const TITLE = 26;
const MOST_IN_TABLE = 20_000;

function colourOf(cell: Cell, theme: Theme): string {
  const { finding } = cell;
  if (isWrong(finding)) {
    if (finding.verdict === "missing") return theme.missing;
    return ratioColour(finding.ratio ?? 10 ** DECADES, theme.dark);
  }
  if (finding.waived || finding.verdict === "untrusted" || finding.verdict === "not-seen") return theme.untrusted;
  return ratioColour(finding.ratio ?? 0, theme.dark);
}

function hatching(theme: Theme): Record<string, unknown> {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 6;
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.strokeStyle = theme.dark ? "rgba(0,0,0,0.55)" : "rgba(255,255,255,0.75)";
  context.lineWidth = 1.2;
  context.beginPath();
  for (const shift of [-6, 0, 6]) {
    context.moveTo(shift, 6);
    context.lineTo(shift + 6, 0);
  }
  context.stroke();
  return { type: "pattern", image: canvas, repeat: "repeat" };
}

interface Api {
  value(dimension: number): number;
  coord(point: [number, number]): [number, number];
  size(extent: [number, number]): [number, number];
}

function optionOf(grid: Grid, theme: Theme, width: number, rowHeight: number): Record<string, unknown> {
  const labelled = Math.min(Math.max(...grid.rows.map((row) => row.length)) * 7 + 24, grid.family ? 60 : 300);
  const gap = 28;
  const total = grid.blocks.reduce((sum, block) => sum + block.columns.length, 0);
  const room = width - labelled - 12 - gap * (grid.blocks.length - 1);
  const cellWidth = Math.min(room / total, grid.family ? 26 : 46);
  const height = rowHeight * grid.rows.length;
  const hatch = hatching(theme);
  let left = labelled;
  const option = {
    animation: false,
    tooltip: {
      ...tooltipStyle(theme),
      formatter: ({ seriesIndex, value }: { seriesIndex: number; value: number[] }) => {
        const [column = 0, row = 0] = value;
        const cell = grid.cells.get(cellKey(row, seriesIndex, column));
        const where = grid.blocks[seriesIndex]?.columns[column];
        if (!cell || !where) return "";
        return el(
          "div",
          { class: "tip" },
          el("strong", {}, clip(titleOf(grid, row, where), 120)),
          el("br"),
          describe(cell),
        );
      },
    },
    title: [] as unknown[],
    grid: [] as unknown[],
    xAxis: [] as unknown[],
    yAxis: [] as unknown[],
    series: [] as unknown[],
  };
  grid.blocks.forEach((block, index) => {
    const blockWidth = cellWidth * block.columns.length;
    option.grid.push({ left, top: TITLE, width: blockWidth, height });
    left += blockWidth + gap;
    option.xAxis.push({
      ...axisStyle(theme),
      type: "category",
      gridIndex: index,
      data: block.columns.map((column) => shortLabel(column.label)),
      position: "bottom",
      splitLine: { show: false },
      axisTick: { show: false },
      axisLabel: {
        color: theme.faint,
        fontSize: cellWidth < 12 ? 9.5 : 11,
        rotate: grid.family || cellWidth < 80 ? 90 : 0,
        interval: cellWidth < 9 ? "auto" : 0,
        hideOverlap: cellWidth < 9,
      },
    });
    option.yAxis.push({
      ...axisStyle(theme),
      type: "category",
      gridIndex: index,
      inverse: true,
      data: grid.rows.map((row) => clip(row, 80)),
      name: block.title,
      nameLocation: "start",
      nameTextStyle: { color: theme.text, fontWeight: 600, fontSize: 13, align: "left" },
      nameGap: 10,
      splitLine: { show: false },
      axisTick: { show: false },
      axisLabel: {
        show: index === 0,
        color: theme.faint,
        width: labelled - 14,
        overflow: "truncate",
        interval: rowHeight < 13 ? "auto" : 0,
      },
    });
    const data: number[][] = [];
    block.columns.forEach((_, column) => {
      grid.rows.forEach((_, row) => {
        if (grid.cells.has(cellKey(row, index, column))) data.push([column, row]);
      });
    });
    option.series.push({
      type: "custom",
      xAxisIndex: index,
      yAxisIndex: index,
      data,
      cursor: "pointer",
      renderItem: (_: unknown, api: Api) => {
        const [column, row] = [api.value(0), api.value(1)];
        const cell = grid.cells.get(cellKey(row, index, column));
        if (!cell) return undefined;
        const [x, y] = api.coord([column, row]);
        const [w, h] = api.size([1, 1]);
        const inset = Math.min(w, h) > 7 ? 1 : 0.25;
        const shape = { x: x - w / 2 + inset, y: y - h / 2 + inset, width: w - 2 * inset, height: h - 2 * inset };
        const children: unknown[] = [{ type: "rect", shape, style: { fill: colourOf(cell, theme) } }];
        if (cell.isExplained) children.push({ type: "rect", shape, style: { fill: hatch }, silent: true });
        if (cell.isRoot) {
          const style = { fill: "none", stroke: theme.frame, lineWidth: 2.5 };
          children.push({ type: "rect", shape, style, silent: true, z2: 20 });
        }
        return { type: "group", children };
      },
    });
  });
  return option;
}

// Keys move a cursor over the cells; a screen reader hears what is under it.
function addKeys(place: HTMLElement, chart: () => Chart, grid: Grid, open: (row: number) => void): void {
  const columns: { block: number; column: number; where: Column }[] = [];
  grid.blocks.forEach((block, index) => {
    block.columns.forEach((where, column) => columns.push({ block: index, column, where }));
  });
  const cursor = el("div", { class: "cursor", hidden: true });
  place.append(cursor);
  let row = 0;
  let at = 0;
  const show = (): void => {
    const here = columns[at];
    if (!here) return;
    const cell = grid.cells.get(cellKey(row, here.block, here.column));
    const finder = { xAxisIndex: here.block, yAxisIndex: here.block };
    const [x = 0, y = 0] = chart().convertToPixel(finder, [here.column, row]);
    const [right = 0] = chart().convertToPixel(finder, [here.column + 1, row]);
    cursor.hidden = false;
    cursor.style.left = `${x}px`;
    cursor.style.top = `${y}px`;
    cursor.style.width = `${Math.max(Math.abs(right - x), 6)}px`;
    announce(`${clip(titleOf(grid, row, here.where))}: ${cell ? describe(cell) : "no tensor"}`);
  };
  place.addEventListener("keydown", (event) => {
    const moves: Record<string, () => void> = {
      ArrowRight: () => (at = Math.min(at + 1, columns.length - 1)),
      ArrowLeft: () => (at = Math.max(at - 1, 0)),
      ArrowDown: () => (row = Math.min(row + 1, grid.rows.length - 1)),
      ArrowUp: () => (row = Math.max(row - 1, 0)),
      Home: () => (at = 0),
      End: () => (at = columns.length - 1),
    };
    const here = columns[at];
    if (event.key === "Enter" && here) {
      const cell = grid.cells.get(cellKey(row, here.block, here.column));
      if (cell) open(cell.finding.row);
    } else if (moves[event.key]) {
      moves[event.key]?.();
      show();
    } else {
      return;
    }
    event.preventDefault();
  });
  place.addEventListener("focus", show);
  place.addEventListener("blur", () => (cursor.hidden = true));
}

function asTable(grid: Grid, open: (row: number) => void): HTMLElement {
  if (grid.cells.size > MOST_IN_TABLE) return el("p", {}, "Too many cells: the table of all tensors below has them.");
  const columns = grid.blocks.flatMap((block, index) =>
    block.columns.map((where, column) => ({ block: index, column, where })),
  );
  const head = el(
    "tr",
    {},
    el("th", { scope: "col" }, grid.family ? "layer" : "module"),
    columns.map(({ where }) => el("th", { scope: "col" }, clip(where.label, 80))),
  );
  const body = grid.rows.map((name, row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, clip(name, 80)),
      columns.map(({ block, column }) => {
        const cell = grid.cells.get(cellKey(row, block, column));
        if (!cell) return el("td");
        const text = cell.finding.ratio === null ? cell.finding.verdict : short(cell.finding.ratio);
        const button = el("button", { type: "button", class: "link", title: describe(cell) }, text);
        button.addEventListener("click", () => open(cell.finding.row));
        return el("td", { class: cell.isRoot ? "root" : cell.isExplained ? "explained" : null }, button);
      }),
    ),
  );
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": "cells as a table" },
    el("table", { class: "matrix" }, el("thead", {}, head), el("tbody", {}, body)),
  );
}

function legend(): HTMLElement {
  const now = theme();
  const steps = Array.from({ length: 40 }, (_, i) => 10 ** (-DECADES + (2 * DECADES * i) / 39));
  const swatch = (colour: string, text: string, extra = ""): HTMLElement =>
    el("span", { class: "key" }, el("span", { class: `swatch ${extra}`, style: `background:${colour}` }), text);
  const high = ratioColour(20, now.dark);
  return el(
    "div",
    { class: "legend" },
    el("span", {}, "error / allowed"),
    el("span", { class: "scale" }, el("span", {}, "≤ 0.01"), steps.map((ratio) =>
      el("span", { class: "step", style: `background:${ratioColour(ratio, now.dark)}` })), el("span", {}, "≥ 100")),
    swatch(high, "root cause", "framed"),
    swatch(high, "follows from one", "hatched"),
    swatch(now.missing, "missing"),
    swatch(now.untrusted, "untrusted, not seen or waived"),
  );
}

export function heatmaps(report: Report, table: Table, open: (row: number) => void): { view: HTMLElement; draw: () => void } {
  const grids = gridsOf(report, table);
  const view = el("section", { id: "heatmap", "aria-labelledby": "heatmap-title" });
  view.append(
    el("h2", { id: "heatmap-title" }, "Error over allowed"),
    el("p", { class: "lead" }, "Each cell is the worst tensor of a module and kind, over micro-batches and iterations, in order of execution from left to right. Choose a cell for its tensor; arrow keys move between cells."),
    legend(),
  );
  const drawings: (() => void)[] = [];
  for (const grid of grids) {
    const title = grid.family ? `${grid.family}: layers` : "Outside of layers";
    const roots = [...grid.cells.values()].filter((cell) => cell.isRoot).length;
    const wrong = [...grid.cells.values()].filter((cell) => isWrong(cell.finding)).length;
    const rowHeight = grid.family ? Math.min(Math.max(640 / grid.rows.length, 5), 24) : 20;
    const place = el("div", {
      class: "chart heat",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": `${clip(title)}: ${grid.rows.length} rows, ${wrong} of ${grid.cells.size} cells wrong, ${roots} with a root cause`,
      style: `height:${TITLE + rowHeight * grid.rows.length + (grid.family ? LABELS : OUTSIDE_LABELS)}px`,
    });
    view.append(el("h3", {}, clip(title)), place, lazyDetails("These cells as a table", () => asTable(grid, open)));
    drawings.push(() => {
      const canvas = el("div", { class: "canvas" });
      place.replaceChildren(canvas);
      const chart = draw(canvas, (now) => optionOf(grid, now, place.clientWidth, rowHeight));
      chart.on("click", ({ seriesIndex, value }) => {
        const [column = 0, row = 0] = value as number[];
        const cell = grid.cells.get(cellKey(row, seriesIndex ?? 0, column));
        if (cell) open(cell.finding.row);
      });
      addKeys(place, () => chart, grid, open);
    });
  }
  return { view, draw: () => drawings.forEach((one) => one()) };
}
