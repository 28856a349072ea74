// A tensor's page: what was measured, who holds it, and where its error lies.
import { rootsOf } from "./cells";
import { axisStyle, draw, tooltipStyle } from "./charts";
import { type Finding, findingAt, isWrong, type Picture, reasonOf, type Report, type Table } from "./data";
import { clip, commandLine, el, lazyDetails, table as tableOf } from "./dom";
import { KINDS } from "./names";
import { count, indices, plural, rankList, short } from "./numbers";
import { errorColour, theme, type Theme } from "./palette";
import { dimensionsOf, rectanglesOf, shardPicture } from "./shards";

const MOST_RELATED = 60;
const MOST_OF_NAME = 1000; // characters

export function when(finding: Finding): string {
  const parts = [];
  if (finding.iteration !== null) parts.push(`iteration ${finding.iteration}`);
  if (finding.microbatch !== null) parts.push(`micro-batch ${finding.microbatch}`);
  if (finding.recomputed) parts.push("recomputed");
  return parts.join(", ");
}

export function verdictPill(finding: Finding): HTMLElement {
  const word = finding.waived ? "waived" : finding.verdict;
  return el("span", { class: `pill ${word}` }, word);
}

// Statistics with a tolerance first, then what else was measured.
function statistics(table: Table, finding: Finding): HTMLElement {
  const rows: string[][] = [];
  const judge = (name: string, measured: number | null, allowed: number | null, estimate: number | null): void => {
    const ratio = measured !== null && allowed ? Math.abs(measured) / allowed : null;
    rows.push([name, short(measured, 4), short(estimate, 4), short(allowed, 4), ratio === null ? "–" : `${short(ratio)} ×`]);
  };
  if (finding.error !== null) judge("rel_err: ‖reference − candidate‖ / ‖reference‖", finding.error, finding.allowed, finding.estimate);
  for (const column of table.names) {
    const [group, name, what] = column.split(".");
    if (group !== "statistics" || what !== "measured" || !name) continue;
    const measured = table.number(column, finding.row);
    if (measured !== null) judge(name, measured, table.number(`statistics.${name}.allowed`, finding.row), null);
  }
  const facts: [string, string][] = [
    ["elements", "elements"],
    ["differing", "elements that differ"],
    ["max_abs", "largest |reference − candidate|"],
    ["reference_norm", "norm of the reference"],
    ["candidate_norm", "norm of the candidate"],
    ["one_minus_cosine", "1 − cosine"],
  ];
  for (const [column, title] of facts) {
    const value = table.number(column, finding.row);
    if (value === null) continue;
    rows.push([title, Number.isInteger(value) && value < 1e15 ? count(value) : short(value, 4), "", "", ""]);
  }
  return tableOf(["statistic", "measured", "estimate", "allowed", "ratio"], rows, { class: "numbers", id: "statistics" });
}

function errorMap(picture: Picture): { view: HTMLElement; draw: () => void } {
  const map = picture.map;
  const shape = picture.candidate_shape;
  if (!map) return { view: el("div"), draw: () => {} };
  const dims = dimensionsOf(picture);
  const extent = { x: shape[map.column_dim] ?? 1, y: shape[map.row_dim] ?? 1 };
  const finite = map.cells.filter((cell): cell is number => cell !== null && cell > 0);
  const [least, most] = [Math.min(...finite), Math.max(...finite)];
  const shareOf = (error: number): number =>
    most > least ? Math.log10(error / least) / Math.log10(most / least) : 1;
  const colourOf = (cell: number | null, now: Theme): string =>
    cell === null ? now.absent : cell < 0 ? now.missing : errorColour(shareOf(cell), now.dark);
  const bounds = (at: number, cells: number, size: number): [number, number] => [
    Math.ceil((at * size) / cells),
    Math.ceil(((at + 1) * size) / cells),
  ];
  const height = Math.min(Math.max((560 * map.rows) / map.columns, 90), 460);
  const place = el("div", { class: "chart", style: `height:${height + 60}px`, role: "img" });
  const wrong = map.cells.filter((cell) => cell !== null).length;
  place.setAttribute("aria-label", `map of |error|: ${map.rows} × ${map.columns} cells, ${wrong} with differences, as a table below`);
  const dimText = (dim: number, what: string): string => (dim < 0 ? "" : `${what} of dim ${dim}`);
  const describe = (row: number, column: number): string => {
    const [y0, y1] = bounds(row, map.rows, extent.y);
    const [x0, x1] = bounds(column, map.columns, extent.x);
    const range = (from: number, to: number): string => (to - from <= 1 ? `${from}` : `${from}:${to}`);
    const cell = map.cells[row * map.columns + column] ?? null;
    const where = [
      map.row_dim < 0 ? "" : `dim ${map.row_dim} at ${range(y0, y1)}`,
      map.column_dim < 0 ? "" : `dim ${map.column_dim} at ${range(x0, x1)}`,
    ].filter(Boolean);
    const error = cell === null ? "equal" : cell < 0 ? "not finite" : `|error| up to ${short(cell)}`;
    return `${where.join(", ")}: ${error}`;
  };
  const borders = rectanglesOf(picture.candidate, dims);
  const value = (now: Theme, name: string, max: number, inverse: boolean): unknown => ({
    ...axisStyle(now),
    type: "value",
    min: 0,
    max,
    inverse,
    name,
    nameLocation: "middle",
    nameGap: inverse ? 44 : 24,
    splitLine: { show: false },
    minInterval: 1,
    axisLabel: { color: now.faint, showMaxLabel: true, hideOverlap: true },
  });
  interface Api {
    value(at: number): number;
    coord(point: [number, number]): [number, number];
  }
  const rectangle = (api: Api, x0: number, y0: number, x1: number, y1: number): unknown => {
    const [left, top] = api.coord([x0, y0]);
    const [right, bottom] = api.coord([x1, y1]);
    return { x: left, y: top, width: right - left, height: bottom - top };
  };
  const option = (now: Theme): Record<string, unknown> => ({
    animation: false,
    grid: { left: 64, right: 16, top: 12, bottom: 44 },
    tooltip: {
      ...tooltipStyle(now),
      formatter: ({ value: [row = 0, column = 0] }: { value: number[] }) => el("div", {}, describe(row, column)),
    },
    xAxis: value(now, dimText(map.column_dim, "index"), extent.x, false),
    yAxis: value(now, dimText(map.row_dim, "index"), extent.y, true),
    series: [
      {
        type: "custom",
        data: map.cells.map((_, at) => [Math.floor(at / map.columns), at % map.columns]),
        renderItem: (_: unknown, api: Api) => {
          const [row, column] = [api.value(0), api.value(1)];
          const [y0, y1] = [(row * extent.y) / map.rows, ((row + 1) * extent.y) / map.rows];
          const [x0, x1] = [(column * extent.x) / map.columns, ((column + 1) * extent.x) / map.columns];
          const fill = colourOf(map.cells[row * map.columns + column] ?? null, now);
          return { type: "rect", shape: rectangle(api, x0, y0, x1, y1), style: { fill, stroke: fill, lineWidth: 0.5 } };
        },
        encode: { x: -1, y: -1 },
      },
      {
        type: "custom",
        silent: true,
        z: 5,
        data: borders.map((_, at) => [at]),
        encode: { x: -1, y: -1 },
        renderItem: (_: unknown, api: Api) => {
          const box = borders[api.value(0)];
          if (!box) return undefined;
          const shape = rectangle(api, box.x, box.y, box.x + box.width, box.y + box.height);
          const style = { fill: "none", stroke: now.frame, lineWidth: 1.5, lineDash: box.isPartial ? [6, 3] : null };
          const label = box.boxes.length === 1 ? `rank ${box.label}` : "";
          const { x, y, width } = shape as { x: number; y: number; width: number };
          const text = label.length * 6.6 < width ? label : "";
          const halo = { fill: now.text, stroke: now.background, lineWidth: 3, text, x: x + 5, y: y + 5, fontSize: 12 };
          return { type: "group", children: [{ type: "rect", shape, style }, { type: "text", style: halo }] };
        },
      },
    ],
  });
  const steps = Array.from({ length: 30 }, (_, at) => at / 29);
  const now = theme();
  const scale = finite.length
    ? el(
        "div",
        { class: "legend" },
        el("span", {}, "|reference − candidate|, largest of each cell"),
        el(
          "span",
          { class: "scale" },
          el("span", {}, short(least)),
          steps.map((share) => el("span", { class: "step", style: `background:${errorColour(share, now.dark)}` })),
          el("span", {}, short(most)),
        ),
        el("span", { class: "key" }, el("span", { class: "swatch", style: `background:${now.absent}` }), "equal"),
        picture.not_finite ? el("span", { class: "key" }, el("span", { class: "swatch", style: `background:${now.missing}` }), "not finite") : null,
      )
    : el("p", {}, "Every element is equal.");
  const asTable = (): HTMLElement => {
    const rows = Array.from({ length: map.rows }, (_, row) => [
      String(bounds(row, map.rows, extent.y)[0]),
      ...Array.from({ length: map.columns }, (_, column) => {
        const cell = map.cells[row * map.columns + column] ?? null;
        return cell === null ? "=" : cell < 0 ? "not finite" : short(cell);
      }),
    ]);
    const head = Array.from({ length: map.columns }, (_, column) => String(bounds(column, map.columns, extent.x)[0]));
    return el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "error map as a table" },
      tableOf(["from index", ...head], rows, { class: "matrix", id: "error-map-table" }),
    );
  };
  return {
    view: el("div", {}, scale, place, lazyDetails("This map as a table", asTable)),
    draw: () => void draw(place, option),
  };
}

function histogram(picture: Picture): { view: HTMLElement; draw: () => void } {
  const octaves = picture.octaves ?? [];
  const place = el("div", { class: "chart", style: "height:230px", role: "img" });
  const lines = [];
  if (picture.equal) lines.push(`${plural(picture.equal, "element")} equal`);
  if (picture.not_finite) lines.push(`${plural(picture.not_finite, "element")} finite on one side only`);
  const first = octaves[0]?.[0] ?? 0;
  const last = octaves.at(-1)?.[0] ?? 0;
  const counts = new Map(octaves);
  const all = Array.from({ length: last - first + 1 }, (_, i) => first + i);
  place.setAttribute("aria-label", `histogram of |error| from ${short(2 ** first)} to ${short(2 ** (last + 1))}`);
  const option = (now: Theme): Record<string, unknown> => ({
    animation: false,
    grid: { left: 64, right: 16, top: 16, bottom: 44 },
    tooltip: {
      ...tooltipStyle(now),
      trigger: "axis",
      formatter: ([item]: { dataIndex: number }[]) => {
        const octave = all[item?.dataIndex ?? 0] ?? 0;
        return el("div", {}, `${short(2 ** octave)} to ${short(2 ** (octave + 1))}: ${plural(counts.get(octave) ?? 0, "element")}`);
      },
    },
    xAxis: { ...axisStyle(now), type: "category", name: "|reference − candidate|", nameLocation: "middle", nameGap: 26, data: all.map((octave) => short(2 ** octave, 2)), splitLine: { show: false } },
    yAxis: { ...axisStyle(now), type: "value", name: "elements", minInterval: 1 },
    series: [{ type: "bar", barCategoryGap: "8%", color: now.series[0], data: all.map((octave) => counts.get(octave) ?? 0) }],
  });
  const view = el("div", {}, lines.length ? el("p", {}, lines.join("; ")) : null, octaves.length ? place : null);
  return { view, draw: () => octaves.length && void draw(place, option) };
}

function worstElements(picture: Picture): HTMLElement {
  const rows = (picture.worst ?? []).map((worst) => {
    const text = (value: number | null): string => (value === null ? "not finite" : short(value, 6));
    const difference = worst.reference === null || worst.candidate === null ? null : Math.abs(worst.reference - worst.candidate);
    return [indices(worst.index), String(worst.rank), text(worst.reference), text(worst.candidate), short(difference, 4)];
  });
  return tableOf(["index", "rank", "reference", "candidate", "|difference|"], rows, { class: "numbers", id: "worst" });
}

// The same tensor at other times, and what else was recorded of the name.
function related(table: Table, finding: Finding, open: (row: number) => void): HTMLElement | null {
  const name = table.place("name", finding.row);
  const rows: number[] = [];
  for (let row = 0; row < table.rows; ++row) if (row !== finding.row && table.place("name", row) === name) rows.push(row);
  if (!rows.length) return null;
  const order = (row: number): number => (table.text("kind", row) === finding.kind ? 0 : 1 + KINDS.indexOf(table.text("kind", row)));
  rows.sort((a, b) => order(a) - order(b) || a - b);
  return el(
    "section",
    {},
    el("h2", {}, "Also of this name"),
    el(
      "ul",
      { class: "related" },
      rows.slice(0, MOST_RELATED).map((row) => {
        const other = findingAt(table, row);
        const button = el("button", { type: "button", class: "link" }, `${other.kind}, ${when(other)}`);
        button.addEventListener("click", () => open(row));
        const ratio = other.ratio === null ? "" : ` ${short(other.ratio)} × allowed`;
        return el("li", {}, verdictPill(other), " ", button, ratio);
      }),
      rows.length > MOST_RELATED ? el("li", {}, `and ${count(rows.length - MOST_RELATED)} more`) : null,
    ),
  );
}

// A word as a shell reads it.
const shellWord = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

export function tensorPage(report: Report, table: Table, row: number, open: (row: number) => void, back: string): { view: HTMLElement; draw: () => void } {
  const finding = findingAt(table, row);
  const picture = report.pictures.find((one) => one.row === row);
  const root = report.roots.find((one) => one.row === row);
  const isRoot = rootsOf(report, table).has(row);
  const follows = finding.followsFrom;
  const view = el("article", { class: "tensor" });
  view.append(el("p", {}, el("a", { href: back, class: "back" }, "← Back to the report")));
  view.append(
    el("h1", { tabindex: "-1" }, el("span", { class: "name" }, clip(finding.name, MOST_OF_NAME)), ` ${finding.kind}`),
    finding.name.length > MOST_OF_NAME ? lazyDetails("The whole name", () => el("pre", { class: "whole-name" }, finding.name)) : "",
    el("p", { class: "where" }, verdictPill(finding), " ", when(finding), isWrong(finding) || finding.reason === "none" ? "" : ` · ${finding.reason}`),
  );
  if (isWrong(finding)) {
    const ranks = JSON.parse(table.text("ranks", row) || "[]") as number[];
    const size = finding.ratio === null ? "" : `${short(finding.ratio)} times what is allowed. `;
    view.append(el("p", {}, `${reasonOf(finding)}. ${size}`, ranks.length ? `The error is on ${rankList(ranks)}.` : ""));
  }
  const message = table.text("message", row);
  if (message) view.append(el("p", {}, message));
  if (finding.waived) view.append(el("p", {}, `Waived: ${finding.waived}`));
  if (root) view.append(el("p", { class: "sentence" }, el("strong", {}, "Root cause: "), clip(root.sentence, 1200)));
  else if (isRoot) view.append(el("p", { class: "sentence" }, el("strong", {}, "A root cause"), ", as in other micro-batches or tensors of the same kind."));
  if (!isRoot && follows !== null) {
    const from = findingAt(table, follows);
    const link = el("button", { type: "button", class: "link" }, `${clip(from.name)} ${from.kind}, ${when(from)}`);
    link.addEventListener("click", () => open(follows));
    view.append(el("p", {}, "Follows from ", link, "."));
  }
  view.append(el("section", {}, el("h2", {}, "What was measured"), statistics(table, finding)));
  const drawings: (() => void)[] = [];
  if (picture) {
    view.append(
      el(
        "section",
        {},
        el("h2", {}, "Who holds which part"),
        el("p", { class: "lead" }, "“=” joins ranks with copies of the same part, “+” ranks whose values add up to it (dashed)."),
        el(
          "div",
          { class: "pair" },
          shardPicture("Reference", picture.reference, picture.reference_shape, picture.reference_dtype, picture),
          shardPicture("Candidate", picture.candidate, picture.candidate_shape, picture.candidate_dtype, picture),
        ),
      ),
    );
    if (picture.map) {
      const map = errorMap(picture);
      const bars = histogram(picture);
      drawings.push(map.draw, bars.draw);
      view.append(el("section", {}, el("h2", {}, "Where the error lies"), el("p", { class: "lead" }, "The logical tensor, with the candidate's shards drawn over it."), map.view));
      view.append(el("section", {}, el("h2", {}, "How large it is"), bars.view));
      if (picture.worst?.length) view.append(el("section", {}, el("h2", {}, "The worst elements"), worstElements(picture)));
    } else {
      view.append(el("p", {}, `Its values are not drawn: ${picture.without_values}.`));
    }
  } else if (finding.error !== null && report.command.startsWith("ttrace check") && finding.name.length < 500) {
    const command = `${report.command} --only ${shellWord(finding.name)} --html tensor.html`;
    view.append(el("section", {}, el("h2", {}, "Where the error lies"), el("p", {}, "This page has pictures of the roots and of the worst tensor of each module and kind. This draws more of them:"), commandLine(command)));
  }
  const others = related(table, finding, open);
  if (others) view.append(others);
  return { view, draw: () => drawings.forEach((one) => one()) };
}
