// Charts of curves, one for each. The stream brings curves that grow. A chart with more lines begins at 0.
window.curves = (() => {
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const number = (y) => (y == null ? "" : String(Number(y.toPrecision(6))));

  const lines = (curve) => [curve.x, curve.y, ...(curve.more ?? []).map((line) => line.y)];

  function options(curve, x, width) {
    const axis = { stroke: style("--text"), grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
    return {
      width, height: 220,
      cursor: { sync: { key: "curves" } },
      scales: { x: { time: false }, ...(curve.more && { y: { range: (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } }) },
      axes: [axis, { ...axis, size: 70, values: (_, ticks) => ticks.map(number) }],
      series: [
        { label: x, value: (_, at) => number(at) },
        { label: curve.name, stroke: style("--link"), width: 2, value: (_, y) => number(y) },
        ...(curve.more ?? []).map((line, i) => ({ label: line.name, stroke: style("--text"), width: 1, dash: i ? [8, 4] : [2, 3], points: { show: false }, value: (_, y) => number(y) })),
      ],
    };
  }

  function draw(charts, log) {
    if (charts.log && charts.log.x !== log.x) { // in another unit
      charts.plots.forEach(remove);
      charts.plots = undefined;
    }
    charts.log = log;
    if (!charts.plots) {
      charts.replaceChildren(); // the room that pages.js has kept
    }
    const kept = charts.plots ?? new Map();
    charts.plots = new Map();
    for (const curve of log.curves) {
      let plot = kept.get(curve.name);
      kept.delete(curve.name);
      if (plot) {
        plot.setData(lines(curve));
      } else {
        const figure = charts.appendChild(document.createElement("figure"));
        figure.appendChild(document.createElement("figcaption")).textContent = curve.name;
        plot = new uPlot(options(curve, log.x, figure.clientWidth), lines(curve), figure);
        plot.figure = figure;
      }
      charts.plots.set(curve.name, plot);
    }
    kept.forEach(remove);
  }

  function remove(plot) {
    plot.destroy();
    plot.figure.remove();
  }

  function redraw() {
    for (const charts of document.querySelectorAll(".charts")) {
      charts.plots?.forEach(remove);
      charts.plots = undefined;
      if (charts.log) {
        draw(charts, charts.log);
      }
    }
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) { // and not at each bar that a phone shows and hides
      width = innerWidth;
      redraw();
    }
  });
  return (charts) => draw(charts, JSON.parse(charts.nextElementSibling.textContent));
})();
