// Numbers for people.

const plain = (value: number, digits: number): string => Number(value.toPrecision(digits)).toString();

// "0.0234", "37.7", "1.2e-7".
export function short(value: number | null, digits = 3): string {
  if (value === null) return "–";
  const magnitude = Math.abs(value);
  if (magnitude !== 0 && (magnitude < 1e-4 || magnitude >= 1e6)) return value.toExponential(digits - 1);
  return plain(value, digits);
}

export const count = (value: number): string => value.toLocaleString("en");

export const plural = (value: number, one: string, several = `${one}s`): string =>
  `${count(value)} ${value === 1 ? one : several}`;

// "rank 3", "ranks 0, 1"
export const rankList = (ranks: number[]): string => `${ranks.length === 1 ? "rank" : "ranks"} ${ranks.join(", ")}`;

// "[8, 16, 64]"
export const indices = (list: number[]): string => `[${list.join(", ")}]`;
