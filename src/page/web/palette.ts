// Colours, for light and dark pages. Blue passes and red fails, which people who confuse red and green can tell apart.

export interface Theme {
  dark: boolean;
  text: string;
  faint: string;
  line: string;
  background: string;
  frame: string;
  absent: string;
  untrusted: string;
  missing: string;
  series: string[];
}

const media = matchMedia("(prefers-color-scheme: dark)");

export function theme(): Theme {
  return media.matches
    ? {
        dark: true,
        text: "#e6e8eb",
        faint: "#9aa3ad",
        line: "#3a424b",
        background: "#15191d",
        frame: "#ffffff",
        absent: "#1d2227",
        untrusted: "#5b636c",
        missing: "#c65ad1",
        series: ["#ff8d6b", "#7fb4ff", "#b9c2cc"],
      }
    : {
        dark: false,
        text: "#1b1f24",
        faint: "#59636e",
        line: "#d5dae0",
        background: "#ffffff",
        frame: "#000000",
        absent: "#f4f6f8",
        untrusted: "#aab2bb",
        missing: "#a02bb0",
        series: ["#c8371b", "#1f63c6", "#59636e"],
      };
}

export const onThemeChange = (redraw: () => void): void => media.addEventListener("change", redraw);

type Colour = [number, number, number];

const hex = (text: string): Colour => [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16)) as Colour;

function between(stops: Colour[], share: number): string {
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  const [a, b] = [stops[low] as Colour, stops[low + 1] as Colour];
  return `rgb(${a.map((value, i) => Math.round(value + ((b[i] as number) - value) * (at - low))).join(",")})`;
}

const PASS_LIGHT = ["#2b6cb8", "#6ea3d8", "#b3d0ea", "#eaf1f7"].map(hex);
const FAIL_LIGHT = ["#fbd9a5", "#f59a55", "#d9482b", "#8d1020"].map(hex);
const PASS_DARK = ["#3f86d6", "#34689f", "#2a4c70", "#26323f"].map(hex);
const FAIL_DARK = ["#6d4a1c", "#b4602a", "#e2573c", "#ff8577"].map(hex);

export const DECADES = 2; // the scale of ratios: from a hundredth of what is allowed to a hundred times that

// The colour of error / allowed, on a log scale: up to 1 it passes.
export function ratioColour(ratio: number, dark: boolean): string {
  const decades = ratio <= 0 ? -DECADES : Math.log10(ratio);
  if (ratio <= 1) return between(dark ? PASS_DARK : PASS_LIGHT, 1 + decades / DECADES);
  return between(dark ? FAIL_DARK : FAIL_LIGHT, decades / DECADES);
}

const ERROR_LIGHT = ["#fff3dc", "#fdcf8a", "#f58d4a", "#cf3f2c", "#6a0a2b"].map(hex);
const ERROR_DARK = ["#2a2320", "#66401f", "#b3602a", "#ee8a5a", "#ffe3c4"].map(hex);

// The colour of an error, as a share of the way from the smallest to the largest.
export const errorColour = (share: number, dark: boolean): string => between(dark ? ERROR_DARK : ERROR_LIGHT, share);

// Neighbouring ranks differ.
export function rankColour(rank: number, dark: boolean): string {
  return `hsl(${(205 + rank * 137.508) % 360} ${dark ? "35% 34%" : "55% 84%"})`;
}

// A curve's colour: neighbours in a legend differ.
export function lineColour(index: number, dark: boolean): string {
  return `hsl(${(12 + index * 137.508) % 360} ${dark ? "85% 68%" : "75% 40%"})`;
}
