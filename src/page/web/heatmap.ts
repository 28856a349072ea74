// The heat maps: error / allowed of every tensor, at a glance.
import { axisStyle, type Chart, draw, tooltipStyle } from "./charts";
import { type Cell, cellKey, type Column, describe, type Grid, gridsOf, titleOf } from "./cells";
import { isWrong, type Report, type Table } from "./data";
import { announce, clip, el, lazyDetails } from "./dom";
import { shortLabel } from "./names";
import { DECADES, ratioColour, theme, type Theme } from "./palette";
import { short } from "./numbers";

// Pixels.
const LABELS = 204; // below the columns
const OUTSIDE_LABELS = 84;
const TITLE = 26;
const GAP = 20; // between blocks
const LETTER = 7.6;
const LEAST_CELL = { phone: 14, desk: 9 }; // what a finger or a mouse can hit; a wider map scrolls
const PHONE = 600;
const MOST_HEIGHT = 420; // of the layers, where rows stay tall enough
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

// Where the blocks of a heat map lie.
interface Layout {
  labels: number; // the width of the rows' names
  cell: number; // the width of a cell
  lefts: number[]; // by block, from where the names end
  width: number; // without the names
  rowHeight: number;
}

function layoutOf(grid: Grid, width: number): Layout {
  const longest = Math.max(...grid.rows.map((row) => row.length));
  const labels = Math.min(longest * 7 + 20, grid.family ? 60 : 300, Math.round(width * 0.4));
  const room = width - labels - GAP * grid.blocks.length;
  // A block is at least as wide as its title.
  const slot = (block: Grid["blocks"][number], cell: number): number => Math.max(block.columns.length * cell, block.title.length * LETTER);
  const total = (cell: number): number => grid.blocks.reduce((sum, block) => sum + slot(block, cell), 0);
  let cell = grid.family ? 26 : 46;
  const least = width < PHONE ? LEAST_CELL.phone : LEAST_CELL.desk;
  while (cell > least && total(cell) > room) cell = Math.max(cell - 0.25, least);
  const lefts: number[] = [];
  let left = 6;
  for (const block of grid.blocks) {
    lefts.push(left);
    left += slot(block, cell) + GAP;
  }
  const rowHeight = grid.family ? Math.min(Math.max(MOST_HEIGHT / grid.rows.length, 5), 22) : 20;
  return { labels, cell, lefts, width: Math.ceil(left), rowHeight };
}

function optionOf(grid: Grid, theme: Theme, layout: Layout): Record<string, unknown> {
  const { cell: cellWidth, rowHeight } = layout;
  const height = rowHeight * grid.rows.length;
  const hatch = hatching(theme);
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
    option.grid.push({ left: layout.lefts[index], top: TITLE, width: cellWidth * block.columns.length, height });
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
      data: grid.rows.map((_, row) => row),
      name: block.title,
      nameLocation: "start",
      nameTextStyle: { color: theme.text, fontWeight: 600, fontSize: 13, align: "left" },
      nameGap: 10,
      splitLine: { show: false },
      axisTick: { show: false },
      axisLabel: { show: false },
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

// The names of the rows stay where they are while the cells scroll.
function rowNames(grid: Grid, { labels, rowHeight }: Layout): HTMLElement {
  const step = Math.ceil(13 / rowHeight);
  const names = grid.rows.map((row, at) =>
    at % step
      ? null
      : el("span", { class: "row-name", style: `top:${TITLE + (at + 0.5) * rowHeight}px`, title: row.length * 7 > labels ? clip(row) : null }, shortLabel(row, Math.floor((labels - 8) / 7))),
  );
  return el("div", { class: "row-names", style: `width:${labels}px` }, names);
}

// Moves what is drawn at `x` to where it is seen.
function scrollTo(place: HTMLElement, x: number, labels: number): void {
  const room = place.clientWidth - labels;
  if (x < place.scrollLeft + 20 || x > place.scrollLeft + room - 20) place.scrollLeft = x - room / 2;
}

interface Place {
  row: number;
  block: number;
  column: number;
  finding: number; // its row in the table
}

function firstRootOf(grid: Grid): Place | undefined {
  const roots = [...grid.cells].filter(([, cell]) => cell.isRoot).map(([key, cell]) => {
    const [row = 0, block = 0, column = 0] = key.split("/").map(Number);
    return { row, block, column, finding: cell.finding.row };
  });
  return roots.sort((a, b) => a.finding - b.finding)[0];
}

// Keys move a cursor over the cells, from the first root on; a screen reader hears what is under it.
function addKeys(place: HTMLElement, chart: () => { chart: Chart; left: number }, grid: Grid, open: (row: number) => void): void {
  const columns: { block: number; column: number; where: Column }[] = [];
  grid.blocks.forEach((block, index) => {
    block.columns.forEach((where, column) => columns.push({ block: index, column, where }));
  });
  const cursor = el("div", { class: "cursor", hidden: true });
  place.append(cursor);
  const root = firstRootOf(grid);
  let row = root?.row ?? 0;
  let at = Math.max(0, columns.findIndex((one) => one.block === root?.block && one.column === root.column));
  const show = (): void => {
    const here = columns[at];
    if (!here) return;
    const cell = grid.cells.get(cellKey(row, here.block, here.column));
    const finder = { xAxisIndex: here.block, yAxisIndex: here.block };
    const drawn = chart();
    const [x = 0, y = 0] = drawn.chart.convertToPixel(finder, [here.column, row]);
    const [right = 0] = drawn.chart.convertToPixel(finder, [here.column + 1, row]);
    cursor.hidden = false;
    cursor.style.left = `${drawn.left + x}px`;
    cursor.style.top = `${y}px`;
    cursor.style.width = `${Math.max(Math.abs(right - x), 6)}px`;
    scrollTo(place, x, drawn.left);
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

// Draws anew where the room changes, such as on a phone that is turned.
function drawIn(place: HTMLElement, grid: Grid, open: (row: number) => void): void {
  const root = firstRootOf(grid);
  let drawn: { chart: Chart; left: number } | undefined;
  let width = 0;
  const redraw = (): void => {
    if (!place.clientWidth || place.clientWidth === width) return; // hidden, or the same
    width = place.clientWidth;
    const layout = layoutOf(grid, width);
    const height = TITLE + layout.rowHeight * grid.rows.length + (grid.family ? LABELS : OUTSIDE_LABELS);
    const canvas = el("div", { class: "cells", style: `width:${layout.width}px;height:${height}px` });
    for (const old of place.querySelectorAll(".row-names, .cells")) old.remove();
    place.prepend(rowNames(grid, layout), canvas);
    const chart = draw(canvas, (now) => optionOf(grid, now, layout));
    chart.on("click", ({ seriesIndex, value }) => {
      const [column = 0, row = 0] = value as number[];
      const cell = grid.cells.get(cellKey(row, seriesIndex ?? 0, column));
      if (cell) open(cell.finding.row);
    });
    drawn = { chart, left: layout.labels };
    if (root) scrollTo(place, (layout.lefts[root.block] ?? 0) + (root.column + 0.5) * layout.cell, layout.labels);
  };
  redraw();
  addKeys(place, () => drawn as { chart: Chart; left: number }, grid, open);
  new ResizeObserver(redraw).observe(place);
}

export function heatmaps(report: Report, table: Table, open: (row: number) => void): { view: HTMLElement; draw: () => void } {
  const rootsAt = new Map(gridsOf(report, table).map((grid) => [grid, firstRootOf(grid)?.finding ?? table.rows]));
  const grids = [...rootsAt.keys()].sort((a, b) => (rootsAt.get(a) ?? 0) - (rootsAt.get(b) ?? 0));
  const view = el("section", { id: "heatmap", "aria-labelledby": "heatmap-title" });
  view.append(
    el("h2", { id: "heatmap-title" }, "Error over allowed"),
    legend(),
  );
  const drawings: (() => void)[] = [];
  for (const grid of grids) {
    const title = grid.family ? `${grid.family}: layers` : "Outside of layers";
    const roots = [...grid.cells.values()].filter((cell) => cell.isRoot).length;
    const wrong = [...grid.cells.values()].filter((cell) => isWrong(cell.finding)).length;
    const place = el("div", {
      class: "heat",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "heat map",
      "aria-label": `${clip(title)}: ${grid.rows.length} rows, ${wrong} of ${grid.cells.size} cells wrong, ${roots} with a root cause`,
    });
    const lead = grid === grids[0] ? " – the worst tensor of each module and kind, in order of execution; choose one" : "";
    view.append(el("h3", {}, clip(title), el("span", { class: "lead" }, lead)), place, lazyDetails("These cells as a table", () => asTable(grid, open)));
    drawings.push(() => drawIn(place, grid, open));
  }
  return { view, draw: () => drawings.forEach((one) => one()) };
}
