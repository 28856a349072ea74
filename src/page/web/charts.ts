// Apache ECharts, with only what is drawn here.
import { BarChart, CustomChart, LineChart } from "echarts/charts";
import { GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import * as echarts from "echarts/core";
import { CanvasRenderer } from "echarts/renderers";
import { onThemeChange, theme, type Theme } from "./palette";

echarts.use([BarChart, CustomChart, LineChart, GridComponent, LegendComponent, TooltipComponent, CanvasRenderer]);

export type Chart = echarts.ECharts;
export type Option = Record<string, unknown>; // the library does not type custom series

interface Drawn {
  place: HTMLElement;
  chart: Chart;
  option: (theme: Theme) => Option;
}

let drawn: Drawn[] = [];
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) {
    if (contentRect.width) drawn.find(({ place }) => place === target)?.chart.resize(); // else it is hidden
  }
});
onThemeChange(() => {
  for (const { chart, option } of drawn) chart.setOption(option(theme()), true);
});

// Draws into a place that is in the document. Charts whose places have left it are forgotten.
export function draw(place: HTMLElement, option: (theme: Theme) => Option): Chart {
  drawn = drawn.filter((one) => {
    if (one.place.isConnected && one.place !== place) return true;
    sizes.unobserve(one.place);
    one.chart.dispose();
    return false;
  });
  const chart = echarts.init(place, null, { renderer: "canvas" });
  chart.setOption(option(theme()));
  drawn.push({ place, chart, option });
  sizes.observe(place);
  return chart;
}

export function tooltipStyle(theme: Theme): Option {
  return {
    backgroundColor: theme.background,
    borderColor: theme.line,
    textStyle: { color: theme.text, fontSize: 13 },
    confine: true,
    transitionDuration: 0,
  };
}

export function axisStyle(theme: Theme): Option {
  return {
    axisLine: { lineStyle: { color: theme.line } },
    axisTick: { lineStyle: { color: theme.line } },
    axisLabel: { color: theme.faint },
    splitLine: { lineStyle: { color: theme.line } },
    nameTextStyle: { color: theme.faint },
  };
}
