// The report that the page carries: src/page/html.cpp writes it.

import type { History } from "./history";
import type { Counts, Report as JsonReport, Root as ReportRoot } from "./report";

// A root's row of the table stands beside it.
export interface Root extends ReportRoot {
  row: number;
}

export interface Axis {
  name: string;
  size: number;
}

export interface Run {
  directory: string;
  run_id: string;
  command: string;
  started: string;
  git_commit: string;
  python: string;
  torch: string;
  device: string;
  compute_dtype: string;
  world_size: number;
  factorings: Axis[][];
  aliases: Record<string, string>;
}

export interface Tolerance {
  file: string;
  estimator: string;
  compute_dtype: string;
  margin: number;
  epsilon: number;
  perturbed_runs: number;
  tensors: number;
  notes: string[];
}

// The start and the size of a box, and the ranks that hold it: a list a replica, of the ranks whose terms add up to it.
export type ShardBox = [start: number[], size: number[], replicas: number[][]];

export interface Shards {
  ranks: number;
  boxes: ShardBox[];
  left_out: number;
}

export interface ErrorMap {
  row_dim: number;
  column_dim: number;
  rows: number;
  columns: number;
  cells: (number | null)[]; // null: equal; -1: not finite
}

export interface Worst {
  index: number[];
  rank: number;
  reference: number | null;
  candidate: number | null;
}

export interface Picture {
  row: number;
  reference_shape: number[];
  candidate_shape: number[];
  reference_dtype: string;
  candidate_dtype: string;
  reference: Shards;
  candidate: Shards;
  without_values?: string;
  map?: ErrorMap;
  octaves?: [octave: number, count: number][];
  equal?: number;
  not_finite?: number;
  worst?: Worst[];
}

// What the page does not read of the JSON report is not in it: the findings are in its table.
export interface Report extends Omit<JsonReport, "schema" | "first_wrong" | "root_cause" | "findings" | "roots"> {
  headline: string;
  sentence: string;
  command: string;
  roots: Root[];
  roots_left_out: number;
  reference_run?: Run;
  candidate_run?: Run;
  tolerance?: Tolerance;
  pictures: Picture[];
  rows: number;
  columns: { name: string; type: "text" | "integer" | "real"; texts?: string[] }[];
}

type Column =
  | { type: "text"; texts: string[]; places: Uint32Array }
  | { type: "integer"; numbers: Int32Array }
  | { type: "real"; numbers: Float32Array };

const NO_INTEGER = -(2 ** 31);

// All tensors that were looked at, in order of execution.
export class Table {
  readonly rows: number;
  readonly names: string[]; // of all columns
  private readonly columns = new Map<string, Column>();

  constructor(report: Report, bytes: Uint8Array) {
    this.rows = report.rows;
    this.names = report.columns.map((column) => column.name);
    let at = 0;
    for (const { name, type, texts } of report.columns) {
      const words = unshuffle(bytes.subarray(at, at + 4 * this.rows), this.rows);
      at += 4 * this.rows;
      if (type === "text") this.columns.set(name, { type, texts: texts ?? [], places: new Uint32Array(words) });
      else if (type === "integer") this.columns.set(name, { type, numbers: new Int32Array(words) });
      else this.columns.set(name, { type, numbers: new Float32Array(words) });
    }
  }

  text(column: string, row: number): string {
    const one = this.columns.get(column);
    return one?.type === "text" ? (one.texts[one.places[row] ?? 0] ?? "") : "";
  }

  // The text as a number: rows with the same text have the same. 0 is the empty text.
  place(column: string, row: number): number {
    const one = this.columns.get(column);
    return one?.type === "text" ? (one.places[row] ?? 0) : 0;
  }

  texts(column: string): string[] {
    const one = this.columns.get(column);
    return one?.type === "text" ? one.texts : [];
  }

  number(column: string, row: number): number | null {
    const one = this.columns.get(column);
    if (!one || one.type === "text") return null;
    const value = one.numbers[row];
    return value === undefined || Number.isNaN(value) || (one.type === "integer" && value === NO_INTEGER) ? null : value;
  }
}

// Puts the four bytes of each word together, which lie apart.
function unshuffle(bytes: Uint8Array, rows: number): ArrayBuffer {
  const words = new Uint8Array(4 * rows);
  for (let byte = 0; byte < 4; ++byte) {
    for (let row = 0; row < rows; ++row) words[4 * row + byte] = bytes[byte * rows + row] ?? 0;
  }
  return words.buffer;
}

// A finding of the table, by names that are checked.
export interface Finding {
  row: number;
  name: string;
  kind: string;
  iteration: number | null;
  microbatch: number | null;
  recomputed: boolean;
  verdict: string;
  reason: string;
  exceeded: string; // the statistic that exceeds its tolerance, where that is the reason
  error: number | null;
  allowed: number | null;
  estimate: number | null;
  ratio: number | null;
  followsFrom: number | null;
  waived: string;
}

export function findingAt(table: Table, row: number): Finding {
  return {
    row,
    name: table.text("name", row),
    kind: table.text("kind", row),
    iteration: table.number("iteration", row),
    microbatch: table.number("microbatch", row),
    recomputed: table.text("pass", row) === "recompute",
    verdict: table.text("verdict", row),
    reason: table.text("reason", row),
    exceeded: table.text("exceeded", row),
    error: table.number("rel_err", row),
    allowed: table.number("allowed", row),
    estimate: table.number("estimate", row),
    ratio: table.number("ratio", row),
    followsFrom: table.number("follows_from", row),
    waived: table.text("waived", row),
  };
}

// The reason, and the statistic, where it is not the norm of the whole error: `exceeds-tolerance (scale)`.
export function reasonOf(finding: Finding): string {
  const { reason, exceeded } = finding;
  return exceeded && exceeded !== "rel_err" ? `${reason} (${exceeded})` : reason;
}

export const isWrong = (finding: Finding): boolean =>
  !finding.waived && (finding.verdict === "fail" || finding.verdict === "missing");

async function inflate(base64: string): Promise<Uint8Array> {
  const packed = atob(base64);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; ++i) bytes[i] = packed.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// A candidate of `ttrace run`.
export interface Candidate {
  name: string;
  command: string;
  verdict: Report["verdict"];
  problem: string | null; // why it could not be checked; it has no report then
  sentence: string | null;
  source: Root["source"] | null; // of the first root
  next: string | null; // command
  counts: Counts | null;
  waived: number;
}

export interface RunIndex {
  verdict: Report["verdict"];
  problem: string | null;
  candidates: Candidate[];
  notes: string[];
  history?: History;
}

export interface Content {
  report: Report;
  table: Table;
}

// The length of the JSON text in 8 hexadecimal digits, the text, the columns.
async function unpackParts(base64: string): Promise<[json: unknown, columns: Uint8Array]> {
  const bytes = await inflate(base64);
  const decoder = new TextDecoder();
  const length = Number.parseInt(decoder.decode(bytes.subarray(0, 8)), 16);
  return [JSON.parse(decoder.decode(bytes.subarray(8, 8 + length))), bytes.subarray(8 + length)];
}

export async function unpackReport(base64: string): Promise<Content> {
  const [json, columns] = await unpackParts(base64);
  return { report: json as Report, table: new Table(json as Report, columns) };
}

// What has no columns: the index of a run, the page of `sdc` or of a history.
export async function unpackJson<T>(base64: string): Promise<T> {
  return (await unpackParts(base64))[0] as T;
}
