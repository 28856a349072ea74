// Gathers the tensors of a report into the cells of heat maps.
import { type Finding, findingAt, isWrong, reasonOf, type Report, type Table } from "./data";
import { KINDS, PHASES, type Phase, phaseOf, placeOf } from "./names";
import { plural, short } from "./numbers";

export interface Cell {
  finding: Finding; // the one to look at: a root, or else the worst
  tensors: number;
  wrong: number;
  isRoot: boolean;
  isExplained: boolean;
}

export interface Column {
  label: string;
  module: string;
  kind: string;
}

// One heat map: modules x kinds outside of layers, layers x (module, kind) inside. Its columns come in blocks.
export interface Grid {
  family: string;
  rows: string[];
  blocks: { phase: Phase; title: string; columns: Column[] }[];
  cells: Map<string, Cell>; // by `cellKey`
}

export const cellKey = (row: number, block: number, column: number): string => `${row}/${block}/${column}`;

// The larger, the more there is to look at.
function interest(finding: Finding, isRoot: boolean): number {
  if (isRoot) return 1e12 + (finding.ratio ?? 0);
  if (isWrong(finding)) return 1e9 + Math.min(finding.ratio ?? 1e8, 1e8);
  if (finding.waived || finding.verdict === "not-seen") return 1e6;
  if (finding.verdict === "untrusted") return 1e5;
  return finding.ratio ?? 0;
}

export function rootsOf(report: Report, table: Table): Set<number> {
  const roots = new Set(report.roots.map((root) => root.row));
  for (let row = 0; row < table.rows; ++row) if (table.number("follows_from", row) === row) roots.add(row);
  return roots;
}

interface Building {
  rows: Map<string, number>;
  columns: Map<Phase, Map<string, Column>>;
  found: { row: string; phase: Phase; column: string; cell: Cell }[];
  at: Map<string, number>; // into `found`
}

export function gridsOf(report: Report, table: Table): Grid[] {
  const roots = rootsOf(report, table);
  const building = new Map<string, Building>();
  const places = table.texts("name").map(placeOf);
  const layers = new Map<string, Set<number>>();
  for (const { family, layer } of places) layers.set(family, (layers.get(family) ?? new Set()).add(layer));
  for (let row = 0; row < table.rows; ++row) {
    const finding = findingAt(table, row);
    if (!finding.name) continue;
    const place = places[table.place("name", row)];
    if (!place) continue;
    const phase = phaseOf(finding.kind);
    const column =
      place.layer < 0
        ? { label: finding.kind, module: "", kind: finding.kind }
        : { label: `${place.module} ${finding.kind}`, module: place.module, kind: finding.kind };
    let one = building.get(place.family);
    if (!one) {
      one = { rows: new Map(), columns: new Map(), found: [], at: new Map() };
      building.set(place.family, one);
    }
    const name = place.layer < 0 ? place.module : String(place.layer);
    if (!one.rows.has(name)) one.rows.set(name, one.rows.size);
    const columns = one.columns.get(phase) ?? new Map<string, Column>();
    one.columns.set(phase, columns);
    if (!columns.has(column.label)) columns.set(column.label, column);
    const isRoot = roots.has(row);
    const key = `${name}\n${column.label}`;
    const known = one.at.get(key);
    const cell = known === undefined ? undefined : one.found[known]?.cell;
    if (!cell) {
      one.at.set(key, one.found.length);
      const isExplained = !isRoot && finding.followsFrom !== null;
      const made = { finding, tensors: 1, wrong: isWrong(finding) ? 1 : 0, isRoot, isExplained };
      one.found.push({ row: name, phase, column: column.label, cell: made });
      continue;
    }
    cell.tensors += 1;
    if (isWrong(finding)) cell.wrong += 1;
    if (interest(finding, isRoot) > interest(cell.finding, cell.isRoot)) {
      cell.finding = finding;
      cell.isRoot = isRoot;
      cell.isExplained = !isRoot && finding.followsFrom !== null;
    }
  }
  const grids = [...building].map(([family, one]) => gridOf(family, one));
  return grids.sort((a, b) => Number(a.family !== "") - Number(b.family !== ""));
}

function gridOf(family: string, one: Building): Grid {
  // Layers by number; modules outside of them as they were executed first.
  const rows = [...one.rows.keys()];
  if (family) rows.sort((a, b) => Number(a) - Number(b));
  const blocks = (Object.keys(PHASES) as Phase[])
    .filter((phase) => one.columns.has(phase))
    .map((phase) => ({ phase, title: PHASES[phase], columns: [...(one.columns.get(phase)?.values() ?? [])] }));
  if (!family) {
    for (const block of blocks) block.columns.sort((a, b) => KINDS.indexOf(a.kind) - KINDS.indexOf(b.kind));
  }
  const rowAt = new Map(rows.map((row, i) => [row, i]));
  const columnAt = blocks.map((block) => new Map(block.columns.map((column, i) => [column.label, i])));
  const cells = new Map<string, Cell>();
  for (const { row, phase, column, cell } of one.found) {
    const block = blocks.findIndex((candidate) => candidate.phase === phase);
    cells.set(cellKey(rowAt.get(row) ?? 0, block, columnAt[block]?.get(column) ?? 0), cell);
  }
  return { family, rows, blocks, cells };
}

// "layer 3, mlp.linear_fc1 output"
export function titleOf(grid: Grid, row: number, column: Column): string {
  return grid.family ? `layer ${grid.rows[row]}, ${column.label}` : `${grid.rows[row]} ${column.label}`;
}

// "fails, 37.7 times what is allowed, root cause; 4 of 4 tensors are wrong"
export function describe(cell: Cell): string {
  const { finding } = cell;
  const parts = [finding.waived ? "waived" : finding.verdict];
  if (finding.reason !== "none" && finding.reason) parts.push(reasonOf(finding));
  if (finding.ratio !== null) parts.push(`${short(finding.ratio)} times what is allowed`);
  if (cell.isRoot) parts.push("root cause");
  if (cell.isExplained) parts.push("follows from a root cause");
  const size = cell.wrong
    ? `${cell.wrong} of ${plural(cell.tensors, "tensor")} wrong`
    : plural(cell.tensors, "tensor");
  return `${parts.join(", ")}; ${size}`;
}
