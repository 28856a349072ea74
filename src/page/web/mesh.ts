// The mesh of ranks as a picture: the first axis to the right, the second downwards, further axes as blocks.
import type { Axis, Run } from "./data";
import { el, svg } from "./dom";
import { plural } from "./numbers";
import { rankColour, theme } from "./palette";

const MOST_RANKS = 256;
const [WIDTH, HEIGHT, GAP] = [34, 24, 3];

export function meshPicture(run: Run, suspects: Set<number>): HTMLElement | null {
  const axes = run.factorings[0] ?? [];
  if (run.world_size < 2) return null;
  const names = run.factorings.map((factoring) => factoring.map((axis) => `${axis.name}=${axis.size}`).join(", ")).filter(Boolean);
  const aliases = Object.entries(run.aliases).map(([alias, axis]) => `${alias} uses the ranks of ${axis}`);
  const text = [names.length ? `${plural(run.world_size, "rank")}: ${names.join(" / ")}` : `${plural(run.world_size, "rank")}, axes not known`, ...aliases];
  const figure = el("figure", { class: "mesh" }, el("figcaption", {}, text.join("; ")));
  if (run.world_size <= MOST_RANKS && axes.length) figure.append(drawing(axes, run.world_size, suspects));
  return figure;
}

function drawing(axes: Axis[], ranks: number, suspects: Set<number>): SVGElement {
  const now = theme();
  const [x = { name: "", size: 1 }, y = { name: "", size: 1 }, ...outer] = axes;
  const blocks = Math.ceil(ranks / (x.size * y.size));
  const across = Math.max(1, Math.min(blocks, Math.floor(560 / (x.size * (WIDTH + GAP) + 24))));
  const blockWidth = x.size * (WIDTH + GAP) + 18;
  const blockHeight = y.size * (HEIGHT + GAP) + (outer.length ? 22 : 8);
  const [left, top] = [44, 20];
  const [width, height] = [left + across * blockWidth, top + Math.ceil(blocks / across) * blockHeight];
  const label = suspects.size ? `; outlined ranks hold the error of the first root cause: ${[...suspects].join(", ")}` : "";
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `mesh of ${ranks} ranks${label}` });
  picture.append(svg("text", { x: left, y: 13, class: "axis", fill: now.faint }, `${x.name} →`));
  if (y.name) picture.append(svg("text", { x: 2, y: top + 14, class: "axis", fill: now.faint }, `${y.name} ↓`));
  for (let rank = 0; rank < ranks; ++rank) {
    const block = Math.floor(rank / (x.size * y.size));
    const px = left + (block % across) * blockWidth + (rank % x.size) * (WIDTH + GAP);
    const py = top + Math.floor(block / across) * blockHeight + Math.floor((rank % (x.size * y.size)) / x.size) * (HEIGHT + GAP);
    const isSuspect = suspects.has(rank);
    picture.append(
      svg("rect", { x: px, y: py, width: WIDTH, height: HEIGHT, rx: 3, fill: rankColour(rank, now.dark), stroke: isSuspect ? now.series[0] : now.line, "stroke-width": isSuspect ? 2.5 : 1 }),
      svg("text", { x: px + WIDTH / 2, y: py + 16, "text-anchor": "middle", class: "rank", fill: now.text }, String(rank)),
    );
    if (outer.length && rank % (x.size * y.size) === 0) {
      let rest = block;
      const where = outer.map((axis) => {
        const at = rest % axis.size;
        rest = Math.floor(rest / axis.size);
        return `${axis.name}=${at}`;
      });
      picture.append(svg("text", { x: px, y: py + y.size * (HEIGHT + GAP) + 10, class: "axis", fill: now.faint }, where.join(" ")));
    }
  }
  return picture;
}
