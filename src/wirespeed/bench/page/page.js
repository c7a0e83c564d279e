// Draws the plots of the page from its data.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const HEIGHT = 260;

  // -- texts

  const three = value =>
    value >= 99.95 ? Math.round(value).toLocaleString("en") : value.toFixed(value >= 9.995 ? 1 : 2);
  const duration = micro =>
    micro == null ? "—"
      : micro < 999.5 ? `${three(micro)} µs`
      : micro < 999500 ? `${three(micro / 1e3)} ms`
      : `${three(micro / 1e6)} s`;
  const short = (value, units) => {
    for (const [unit, scale] of units)
      if (value >= scale) return `${+(value / scale).toPrecision(3)}${unit}`;
    return `${+value.toPrecision(3)}${units[units.length - 1][0]}`;
  };
  const shortDuration = micro => micro == null ? "" : short(micro, [[" s", 1e6], [" ms", 1e3], [" µs", 1]]);
  const shortCount = n => n == null ? "" : short(n, [["M", 1e6], ["k", 1e3], ["", 1]]);
  const count = n => n == null ? "—" : Math.round(n).toLocaleString("en");
  const percent = at => {
    const decades = Math.log10(at);
    if (Math.abs(at - 2) < 1e-9) return "50 %";
    return Math.abs(decades - Math.round(decades)) > 1e-9 ? null
      : `${(100 * (1 - 1 / at)).toFixed(Math.max(0, Math.round(decades) - 2))} %`;
  };

  // -- plots

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = new Map();

  function axis(values, more) {
    return {
      stroke: () => colour("--soft"),
      grid: {stroke: () => colour("--grid"), width: 1},
      ticks: {stroke: () => colour("--grid"), width: 1},
      font: "12px system-ui, sans-serif",
      values,
      ...more,
    };
  }

  function line(label, index, value, more) {
    return {
      label,
      stroke: () => colour(`--c${index % 8}`),
      width: 1.75,
      value: (_, v) => value(v),
      ...more,
    };
  }

  function draw(id, options, columns) {
    const figure = document.getElementById(id);
    const place = figure.querySelector(".plot");
    figure.hidden = false;
    drawn.get(id)?.destroy();
    const plot = new uPlot(
      {
        width: place.clientWidth || 300,
        height: HEIGHT,
        cursor: {y: false, points: {size: 7}, drag: {x: true, y: false}},
        ...options,
      },
      columns,
      place,
    );
    drawn.set(id, plot);
  }

  const logarithmic = {distr: 3, log: 10};
  const few = n => ({points: {show: n < 40, size: 5}});
  // a scale of one value has no length
  const wide = (_, low, high) => {
    if (low == null) return [1, 10];
    const from = 10 ** Math.floor(Math.log10(low)), to = 10 ** Math.ceil(Math.log10(high));
    return from < to ? [from, to] : [from, from * 10];
  };
  // powers of ten, and steps between when they are few
  const marks = (low, high) => {
    const found = [];
    const steps = high / low > 100 ? [1] : [1, 2, 5];
    for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high * 1.0001; decade *= 10)
      for (const step of steps)
        if (step * decade >= low * 0.9999 && step * decade <= high * 1.0001) found.push(step * decade);
    return found;
  };
  const logAxis = (values, more) => axis(values, {
    splits: (_, __, low, high) => marks(low, high),
    filter: (_, splits) => splits,
    ...more,
  });
  const latencyAxis = logAxis((_, values) => values.map(shortDuration), {size: 62});

  function overTime(index) {
    const [at, p50, p99, highest, ok, errors] = data.runs[index].series;
    const seconds = axis((_, values) => values.map(v => `${+v.toFixed(2)} s`), {space: 64});
    const x = {label: "time", value: (_, v) => v == null ? "—" : `${v.toFixed(1)} s`};
    const from = {time: false, range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(high ?? 1, 1e-3)]};
    draw("time", {
      scales: {x: from, y: {...logarithmic, range: wide}},
      axes: [seconds, latencyAxis],
      series: [
        x,
        line("median", 0, duration, few(at.length)),
        line("99 %", 1, duration, few(at.length)),
        line("highest", 7, duration, {...few(at.length), dash: [4, 3], width: 1.25}),
      ],
    }, [at, p50, p99, highest]);
    const bad = errors.some(n => n > 0);
    draw("rate", {
      scales: {x: from, y: {range: (_, low, high) => [0, (high || 1) * 1.08]}},
      axes: [seconds, axis((_, values) => values.map(shortCount), {size: 62})],
      series: [
        x,
        line("right", 2, count, few(at.length)),
        ...bad ? [line("not right", 4, count, few(at.length))] : [],
      ],
    }, [at, ok, ...bad ? [errors] : []]);
    const name = document.getElementById("of-run");
    if (name) name.textContent = `of ${data.runs[index].name}`;
  }

  function curve() {
    const {at, names, values, left_out: leftOut} = data.curves;
    if (!names.length) {
      document.getElementById("curve").hidden = true;
      return;
    }
    draw("curve", {
      scales: {x: {...logarithmic, time: false, range: (_, low, high) => [1, Math.max(high, 10)]}, y: {...logarithmic, range: wide}},
      axes: [
        logAxis((plot, values) => {
          let before = -Infinity; // labels keep a distance
          return values.map(v => {
            const x = plot.valToPos(v, "x");
            if (x - before < 44) return null;
            before = x;
            return percent(v);
          });
        }, {splits: (_, __, low, high) => [2, ...marks(10, Math.max(high, 1001))].filter(v => v <= high)}),
        latencyAxis,
      ],
      series: [
        {label: "percentile", value: (_, v) => v == null ? "—" : `${(100 * (1 - 1 / v)).toFixed(Math.max(1, Math.ceil(Math.log10(v))))} %`},
        ...names.map((name, i) => line(name, i, duration, {points: {show: false}})),
      ],
    }, [at, ...values]);
    document.getElementById("left-out").textContent = leftOut ? `${names.length} of ${names.length + leftOut} loads` : "";
  }

  function ramp() {
    if (!data.ramps.length) return;
    // the rates of all ramps are the places on one axis
    const tables = data.ramps.map(one => {
      const steps = one.rate.map((rate, i) => [rate, one.p50[i], one.p99[i]]).sort((a, b) => a[0] - b[0]);
      return [0, 1, 2].map(i => steps.map(step => step[i]));
    });
    const joined = uPlot.join(tables);
    const series = data.ramps.flatMap((one, i) => {
      const prefix = one.name ? `${one.name}: ` : "";
      return [
        line(`${prefix}median`, 2 * i, duration, {points: {show: true, size: 6}, spanGaps: true}),
        line(`${prefix}99 %`, 2 * i + 1, duration, {points: {show: true, size: 6}, spanGaps: true}),
      ];
    });
    const knees = data.ramps.filter(one => one.knee != null).map(one => one.rate[one.knee]);
    draw("ramp", {
      scales: {x: {time: false, ...logarithmic, range: (_, low, high) => [low / 1.1, high * 1.1]}, y: {...logarithmic, range: wide}},
      axes: [
        logAxis((_, values) => values.map(v => `${shortCount(v)}/s`)),
        latencyAxis,
      ],
      series: [{label: "rate", value: (_, v) => v == null ? "—" : `${count(v)}/s`}, ...series],
      hooks: {
        drawClear: [plot => {
          const {ctx, bbox} = plot;
          ctx.save();
          ctx.strokeStyle = colour("--c2");
          ctx.setLineDash([6, 4]);
          ctx.lineWidth = devicePixelRatio;
          for (const rate of knees) {
            const x = Math.round(plot.valToPos(rate, "x", true));
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
          }
          ctx.restore();
        }],
      },
    }, joined);
    document.getElementById("knee").textContent = data.ramps.map(one =>
      `${one.name ? `${one.name}: ` : ""}${one.knee == null ? "keeps up at no step" : `keeps up to ${count(one.asked[one.knee])} a second`}`,
    ).join(" · ");
  }

  const select = document.querySelector("#time select");
  const all = () => {
    overTime(select ? +select.value : 0);
    curve();
    ramp();
  };
  select?.addEventListener("change", () => overTime(+select.value));
  all();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  new ResizeObserver(() => {
    for (const plot of drawn.values()) {
      const width = plot.root.parentNode.clientWidth;
      if (width && width !== plot.width) plot.setSize({width, height: HEIGHT});
    }
  }).observe(document.querySelector("main"));
})();
