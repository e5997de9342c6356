"use strict";
(() => {
  const report = JSON.parse(document.getElementById("report").textContent);
  const views = new Map();
  const state = { level: report.startLevel, weights: null };

  // Numbers are written as in the rest of the page: number_style.py has the same rules.
  const write = (value, style) => {
    if (value === null) return "–";
    let text;
    if (style.exponentFigures === null) {
      const decimals = Math.max(0, style.places);
      text = value.toLocaleString("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    } else {
      text = value.toExponential(style.exponentFigures).replace("e+", "e");
    }
    if (Number(text.replaceAll(",", "")) === 0) text = text.replace(/^-/, "");
    return text.replaceAll("-", "\u2212");
  };
  const percent = (share) => (share === null ? "–" : (100 * share).toFixed(1) + "%");
  const show = (root, selector, text) => {
    for (const element of root.querySelectorAll(selector)) {
      if (element.textContent !== text) element.textContent = text;
    }
  };
  const signal = (id, values) => {
    const view = views.get(id);
    if (!view) return;
    for (const [name, value] of Object.entries(values)) view.signal(name, value);
    view.runAsync();
  };

  const showCoordinate = (index) => {
    const coordinate = report.coordinates[index];
    const root = document.querySelector(`.coordinate[data-index="${index}"]`);
    const position = Number(document.getElementById(`threshold-${index}`).value);
    const threshold = (coordinate.first + position) * coordinate.step;
    show(root, '[data-show="threshold"]', write(threshold, coordinate.thresholdStyle));
    for (const [name, panel] of Object.entries(coordinate.panels)) {
      const cell = (measure) => `[data-panel="${name}"][data-measure="${measure}"]`;
      show(root, cell("edge"), write(panel.edge[state.level], coordinate.style));
      show(root, cell("tailMean"), write(panel.tailMean[state.level], coordinate.style));
      show(root, cell("below"), percent(panel.below[position]));
    }
    const panel = coordinate.panels.estimate;
    if (panel.ends) {
      const both = (measure, place, text) => show(
        root, `[data-ends="${measure}"]`, panel.ends[measure].map((ends) => text(ends[place])).join(" to "),
      );
      both("edge", state.level, (value) => write(value, coordinate.style));
      both("tailMean", state.level, (value) => write(value, coordinate.style));
      both("below", position, percent);
    }
    const edge = panel.edge[state.level];
    signal(`density-${index}`, { edge, tailMean: panel.tailMean[state.level] });
    signal(`cdf-${index}`, {
      edge, level: report.levels[state.level], threshold, share: panel.below[position],
    });
  };

  // The same definitions as fle.returns: a value at the boundary counts in part.
  const summarise = (rows, weights, level) => {
    const sums = Float64Array.from(rows, (row) => row.reduce((total, value, i) => total + weights[i] * value, 0)).sort();
    const n = sums.length;
    const mean = sums.reduce((a, b) => a + b, 0) / n;
    const variance = sums.reduce((a, b) => a + (b - mean) ** 2, 0) / n;
    const draws = level * n;
    const whole = Math.min(Math.floor(draws + 1e-9), n - 1);
    let tail = (draws - whole) * sums[whole];
    for (let i = 0; i < whole; i += 1) tail += sums[i];
    return {
      sums, mean, std: Math.sqrt(variance), edge: sums[Math.ceil(draws - 1e-9) - 1], tailMean: tail / draws,
      below: sums.filter((value) => value < 0).length / n,
    };
  };
  const histogram = (sums, low, high) => {
    const n = sums.length;
    const bins = Math.max(5, Math.min(60, Math.round(2 * Math.cbrt(n))));
    const width = (high - low) / bins;
    const counts = new Array(bins).fill(0);
    for (const value of sums) {
      const bin = Math.floor((value - low) / width);
      if (bin >= 0 && bin < bins) counts[bin] += 1;
    }
    const steps = counts.map((count, i) => ({ z: low + i * width, p: count / (n * width) }));
    return [...steps, { z: high, p: 0 }];
  };
  const styleOf = (mean, std) => {
    const size = Math.max(Math.abs(mean), std) || 1;
    const spread = std > 1e-12 * size ? std : size;
    const places = 2 - Math.floor(Math.log10(spread));
    const plain = size < 1e7 && spread >= 1e-4;
    return { places, exponentFigures: plain ? null : Math.max(2, places + Math.floor(Math.log10(size))) };
  };
  const showWeighted = () => {
    if (!report.weighted) return;
    const root = document.getElementById("weighted-section");
    const weights = [...root.querySelectorAll(".weight")].map((input) => Number(input.value));
    weights.forEach((weight, i) => show(root, `[data-weight="${i}"]`, weight.toFixed(2).replace("-", "\u2212")));
    const level = report.levels[state.level];
    const panels = { estimate: summarise(report.weighted.draws, weights, level) };
    if (report.weighted.episodes) panels.behaviour = summarise(report.weighted.episodes, weights, level);
    const style = styleOf(panels.estimate.mean, panels.estimate.std);
    for (const [name, panel] of Object.entries(panels)) {
      const cell = (measure) => `[data-sum="${name}"][data-measure="${measure}"]`;
      for (const measure of ["mean", "std", "edge", "tailMean"]) show(root, cell(measure), write(panel[measure], style));
      show(root, cell("below"), percent(panel.below));
    }
    if (report.weighted.replicates) {
      const [own, ...others] = report.weighted.replicates.map((rows) => summarise(rows, weights, level));
      for (const measure of ["mean", "std", "edge", "tailMean", "below"]) {
        const squares = others.map((other) => (other[measure] - own[measure]) ** 2);
        const half = report.weighted.student * Math.sqrt(squares.reduce((a, b) => a + b, 0) / squares.length);
        const ends = [-half, half].map((side) => panels.estimate[measure] + side);
        const written = measure === "below"
          ? ends.map((end) => percent(Math.min(1, Math.max(0, end))))
          : ends.map((end) => write(end, style));
        show(root, `[data-sum-ends="${measure}"]`, written.join(" to "));
      }
    }
    const view = views.get("weighted");
    if (!view) return;
    const { sums, std, edge, tailMean } = panels.estimate;
    const margin = 0.25 * std || 0.1 * Math.abs(sums[0]) || 1;
    const [low, high] = [sums[0] - margin, sums[sums.length - 1] + margin];
    view.data("steps", histogram(sums, low, high));
    view.data("logged", panels.behaviour ? histogram(panels.behaviour.sums, low, high) : [{ z: low, p: 0 }]);
    signal("weighted", { low, high, edge, tailMean });
  };

  const showLevel = () => {
    const text = `${Math.round(100 * report.levels[state.level])}%`;
    show(document, '[data-show="level"]', text);
    for (const input of document.querySelectorAll(".level")) {
      input.value = state.level + 1;
      input.setAttribute("aria-valuetext", text);
    }
    report.coordinates.forEach((_, index) => showCoordinate(index));
    showWeighted();
  };
  const onInput = (selector, handler) => {
    for (const input of document.querySelectorAll(selector)) input.addEventListener("input", () => handler(input));
  };
  onInput(".level", (input) => { state.level = Number(input.value) - 1; showLevel(); });
  onInput(".threshold", (input) => showCoordinate(Number(input.id.split("-")[1])));
  onInput(".weight", showWeighted);

  const options = { actions: false, renderer: "svg", tooltip: false };
  const drawn = Object.entries(report.charts).map(([id, spec]) =>
    vegaEmbed(`#${id}`, spec, options).then((result) => views.set(id, result.view)));
  Promise.all(drawn).then(() => {
    showLevel();
    document.documentElement.dataset.ready = "true";
  });
})();
