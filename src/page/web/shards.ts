// Who holds which part of a logical tensor, as boxes over two of its dimensions.
import type { ShardBox, Picture, Shards } from "./data";
import { el, svg } from "./dom";
import { count, indices, plural } from "./numbers";
import { rankColour, theme } from "./palette";

const WIDTH = 400;
const MOST_LISTED = 40;

// The ranks that hold a box: `0 + 1` are terms of a sum, `0 = 2` replicas.
export function holdersOf(replicas: number[][], most = 8): string {
  const shown = replicas.slice(0, most).map((ranks) => ranks.join(" + "));
  if (replicas.length > most) shown.push(`… ${replicas.length - most} more`);
  return shown.join(" = ");
}

function rangesOf([start, size]: ShardBox): string {
  return `[${start.map((from, dim) => `${from}:${from + (size[dim] ?? 0)}`).join(", ")}]`;
}

// The two dimensions that are drawn: those of the error map, or else the last two.
export function dimensionsOf(picture: Picture): { row: number; column: number } {
  if (picture.map) return { row: picture.map.row_dim, column: picture.map.column_dim };
  const dims = picture.candidate_shape.length;
  return { row: dims - 2 >= 0 ? dims - 2 : -1, column: dims - 1 };
}

export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
  label: string;
  rank: number;
  isPartial: boolean;
  boxes: ShardBox[];
}

// Boxes that look the same in these two dimensions are one rectangle, in indices of the tensor.
export function rectanglesOf(shards: Shards, dims: { row: number; column: number }): Rectangle[] {
  const found = new Map<string, Rectangle>();
  for (const box of shards.boxes) {
    const [start, size, replicas] = box;
    const at = (list: number[], dim: number, otherwise: number): number => (dim < 0 ? otherwise : (list[dim] ?? otherwise));
    const rectangle = {
      x: at(start, dims.column, 0),
      y: at(start, dims.row, 0),
      width: at(size, dims.column, 1),
      height: at(size, dims.row, 1),
    };
    const key = Object.values(rectangle).join();
    const known = found.get(key);
    if (known) {
      known.boxes.push(box);
      known.label = `${known.boxes.length} boxes`;
    } else {
      found.set(key, {
        ...rectangle,
        label: holdersOf(replicas, 4),
        rank: replicas[0]?.[0] ?? 0,
        isPartial: replicas.some((ranks) => ranks.length > 1),
        boxes: [box],
      });
    }
  }
  return [...found.values()];
}

export function shardPicture(title: string, shards: Shards, shape: number[], dtype: string, picture: Picture): HTMLElement {
  const now = theme();
  const dims = dimensionsOf(picture);
  const columns = dims.column < 0 ? 1 : (shape[dims.column] ?? 1);
  const rows = dims.row < 0 ? 1 : (shape[dims.row] ?? 1);
  const height = Math.min(Math.max((WIDTH * rows) / Math.max(columns, 1), 72), 300);
  const [left, top] = [34, 22];
  const drawing = svg("svg", {
    viewBox: `0 0 ${WIDTH + left + 4} ${height + top + 4}`,
    role: "img",
    "aria-label": `${title}: ${plural(shards.ranks, "rank")}, boxes listed below`,
    class: "shards",
  });
  for (const one of rectanglesOf(shards, dims)) {
    const x = left + (one.x / columns) * WIDTH;
    const y = top + (one.y / rows) * height;
    const width = (one.width / columns) * WIDTH;
    const tall = (one.height / rows) * height;
    drawing.append(
      svg(
        "rect",
        {
          x,
          y,
          width,
          height: tall,
          fill: rankColour(one.rank, now.dark),
          stroke: now.text,
          "stroke-width": one.isPartial ? 2 : 1,
          "stroke-dasharray": one.isPartial ? "6 3" : null,
        },
        svg("title", {}, one.boxes.slice(0, 20).map((box) => `${rangesOf(box)}: rank ${holdersOf(box[2])}\n`)),
      ),
    );
    const text = one.boxes.length === 1 ? `rank ${one.label}` : one.label;
    const fits = (label: string): boolean => label.length * 7 < width - 6 && tall > 14;
    const label = fits(text) ? text : fits(one.label) ? one.label : "";
    if (label) {
      const middle = { x: x + width / 2, y: y + tall / 2 + 4, "text-anchor": "middle", class: "shard-label", fill: now.text };
      drawing.append(svg("text", middle, label));
    }
  }
  const axis = (text: string, x: number, y: number, turn = ""): void => {
    drawing.append(svg("text", { x, y, "text-anchor": "middle", class: "axis", fill: now.faint, transform: turn }, text));
  };
  if (dims.column >= 0) axis(`dim ${dims.column}: ${count(columns)}`, left + WIDTH / 2, 14);
  if (dims.row >= 0) axis(`dim ${dims.row}: ${count(rows)}`, 14, top + height / 2, `rotate(-90 14 ${top + height / 2})`);
  const listed = shards.boxes.slice(0, MOST_LISTED);
  const more = shards.boxes.length - listed.length + shards.left_out;
  return el(
    "figure",
    { class: "shard-figure" },
    el("figcaption", {}, el("strong", {}, title), ` ${indices(shape)} ${dtype}, on ${plural(shards.ranks, "rank")}`),
    drawing,
    el(
      "details",
      {},
      el("summary", {}, plural(shards.boxes.length + shards.left_out, "box", "boxes")),
      el(
        "ul",
        { class: "boxes" },
        listed.map((box) => el("li", {}, `${rangesOf(box)}: rank ${holdersOf(box[2], 32)}`)),
        more > 0 ? el("li", {}, `and ${count(more)} more`) : null,
      ),
    ),
  );
}
