// Draws the report from the data in this page. Text from results goes into the page as text nodes only.
(function () {
  "use strict";
  const holder = document.getElementById("data");
  const data = JSON.parse(holder.textContent);
  const element = (id) => document.getElementById(id);
  if (!element("table")) return; // a report without any valid result

  const SIGNS = ["✓", "▾", "", "×", "?"];
  const PAGE = 150;
  const CANVAS_FROM = 800; // marks: above, a canvas is much faster than SVG
  const named = (fields, values) => Object.fromEntries(fields.map((field, n) => [field, values[n]]));
  const jobs = data.jobs.map((values, index) => ({ ...named(data.job_fields, values), index }));
  const rows = data.rows.map((values, index) => {
    const row = { ...named(data.row_fields, values), index };
    // "candidate" is the candidate's mean in a row, its name in a chart.
    row.mean = row.candidate;
    row.job = jobs[row.job];
    row.name = row.job.candidate;
    row.shape = row.column === null ? row.job.name.slice(row.name.length).trim() : data.columns[row.column];
    row.sign = SIGNS[row.status];
    return row;
  });

  // --- words -------------------------------------------------------------------------------------------------
  const percent = (value, digits = 2) =>
    value === null || value === undefined ? "–" : (value < 0 ? "−" : "+") + (100 * Math.abs(value)).toFixed(digits) + "%";
  const number = (value) => {
    if (value === null || value === undefined) return "–";
    return Number.isInteger(value) && Math.abs(value) < 1e6 ? String(value) : String(Number(value.toPrecision(4)));
  };
  const change = (from, to) => {
    if (from === null && to === null) return "–";
    return from === to ? number(from) : number(from) + " → " + number(to);
  };
  const word = (decision) => decision.replace("REJECTED:", "").replaceAll("_", " ");

  function make(tag, text, attributes = {}) {
    const node = document.createElement(tag);
    if (text !== undefined && text !== null) node.textContent = text;
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  }

  // --- charts ------------------------------------------------------------------------------------------------
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const tip = element("tip");
  let printing = false;
  const drawn = new Map();

  function tooltip(_, event, item, value) {
    if (value === null || value === undefined || value === "" || typeof value !== "object") {
      tip.hidden = true;
      return;
    }
    const table = make("table");
    for (const [key, text] of Object.entries(value)) {
      if (text === undefined || text === null || text === "" || text === "null" || text === "NaN") continue;
      const line = table.insertRow();
      line.append(make("th", key), make("td", String(text)));
    }
    tip.replaceChildren(table);
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
    const top = event.clientY + 16 + box.height > window.innerHeight ? event.clientY - box.height - 10 : event.clientY + 16;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  // A chart is a function of the width that gives a specification; it is drawn again when width or colours change.
  function chart(host, kind, build, click) {
    drawn.set(host, { kind, build, click, width: 0, view: null });
    draw(host);
  }

  function draw(host) {
    const one = drawn.get(host);
    one.width = host.parentElement.clientWidth;
    const { spec, marks } = one.build(Math.max(240, one.width));
    spec.config = structuredClone(data.themes[dark.matches && !printing ? "dark" : "light"][one.kind]);
    if (one.width < 500) spec.config.legend.columns = 3;
    if (one.view) one.view.finalize();
    host.replaceChildren();
    one.view = new vega.View(vega.parse(vegaLite.compile(spec).spec, null, { ast: true }), {
      expr: vega.expressionInterpreter,
      renderer: marks > CANVAS_FROM ? "canvas" : "svg",
      container: host,
      hover: true,
      tooltip,
      logLevel: vega.Error,
    });
    if (one.click) one.view.addEventListener("click", (_, item) => item && item.datum && one.click(item.datum));
    one.view.run();
  }

  function redraw() {
    for (const host of drawn.keys()) {
      if (host.isConnected) draw(host);
      else {
        drawn.get(host).view.finalize();
        drawn.delete(host);
      }
    }
  }
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if ([...drawn].some(([host, one]) => host.isConnected && host.parentElement.clientWidth !== one.width)) redraw();
    }, 150);
  });
  dark.addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { printing = true; if (dark.matches) redraw(); });
  window.addEventListener("afterprint", () => { printing = false; if (dark.matches) redraw(); });

  function specification(name, sets, description) {
    const spec = structuredClone(data.specs[name]);
    spec.datasets = sets;
    spec.description = description;
    return spec;
  }
  function set(spec, name, value) {
    spec.params.find((param) => param.name === name).value = value;
  }
  const fit = { type: "fit", contains: "padding" };

  // --- S-curve -----------------------------------------------------------------------------------------------
  const shapes = element("curve-shape");
  if (data.columns.length !== 1) shapes.append(new Option(data.all_shapes, "-1"));
  data.columns.forEach((label, n) => shapes.append(new Option(label, String(n))));
  shapes.parentElement.hidden = data.columns.length < 2;

  function points(column) {
    const status = (one) => data.statuses[one.status];
    if (column < 0) return jobs.map((job) => ({ ...job, candidate: job.name, column: data.all_shapes, status: status(job), row: rowsOf(job)[0].index }));
    return rows
      .filter((row) => row.column === column)
      .map((row) => ({
        candidate: row.name, column: row.shape, status: status(row), decision: row.decision,
        gain: row.gain, low: row.low, high: row.high, row: row.index,
      }));
  }
  const rowsOf = (job) => rows.filter((row) => row.job === job);

  function curve() {
    const column = Number(shapes.value);
    const found = points(column);
    const [low, high] = data.axes[column + 1];
    const gains = found.map((point) => point.gain).filter((gain) => gain !== null).sort((a, b) => a - b);
    const below = gains.filter((gain) => gain < low).length;
    const without = found.length - gains.length;
    const several = column < 0 && jobs.some((job) => rowsOf(job).length > 1);
    const note = [
      several ? "Dots: mean over shapes; bars: from the worst shape to the best." :
        found.some((point) => point.low !== null) ? "Bars: where a repetition in new processes falls 19 times of 20." : "",
      gains.length ? "Best " + percent(gains[gains.length - 1]) + ", median " + percent(gains[gains.length >> 1]) + ", worst " + percent(gains[0]) + "." : "",
      below ? below + " below the axis are drawn at its end." : "",
      without ? without + " without a gain are at the lower edge, on the left." : "",
    ].filter(Boolean).join(" ");
    element("curve-note").textContent = note;
    chart(element("curve"), "status", (width) => {
      const spec = specification("s_curve", { points: found }, "Gain of " + found.length + " candidates, sorted. " + note);
      set(spec, "low", low);
      set(spec, "high", high);
      return { spec: { ...spec, width, height: width < 500 ? 320 : 380, autosize: fit }, marks: 2 * found.length };
    }, (datum) => datum.row !== undefined && open(datum.row));
  }
  shapes.addEventListener("change", curve);
  curve();

  // --- heat map ----------------------------------------------------------------------------------------------
  function cells() {
    const order = new Map(data.candidates.map((name, n) => [name, n]));
    const found = [];
    for (const row of rows) {
      // A job that ended before its first shape stands for all the shapes that it would have had.
      for (const column of row.column === null ? row.job.columns : [row.column]) {
        found.push({
          candidate: row.job.candidate, column: data.columns[column], order: order.get(row.job.candidate),
          status: data.statuses[row.status], decision: row.decision, gain: row.gain, sign: row.sign, row: row.index,
        });
      }
    }
    return found;
  }
  if (data.columns.length < 2 || data.candidates.length < 2) element("heat-section").hidden = true;
  else {
    const found = cells();
    const sizes = found.map((cell) => Math.abs(cell.gain || 0)).filter(Boolean).sort((a, b) => a - b);
    // One very bad candidate must not make all others look alike.
    const most = sizes.length ? sizes[Math.ceil(0.9 * (sizes.length - 1))] : 0.1;
    const best = Math.max(0, ...found.map((cell) => cell.gain || 0));
    const reach = Math.max(0.01, best, best ? Math.min(most, 2 * best) : most);
    chart(element("heat"), "status", (width) => {
      const spec = specification("heat_map", { cells: found }, "Gain of each candidate on each shape");
      set(spec, "reach", reach);
      const room = width - Math.min(190, 20 + 7 * Math.max(...data.columns.map((label) => label.length)));
      const step = Math.max(data.candidates.length > 40 ? 3 : 16, Math.min(44, Math.floor(room / data.candidates.length)));
      if (step < 7) spec.layer.pop(); // no room for signs
      return { spec: { ...spec, width: { step }, height: { step: 24 } }, marks: found.length };
    }, (datum) => datum.row !== undefined && open(datum.row));
  }

  // --- table -------------------------------------------------------------------------------------------------
  const timed = rows.some((row) => row.low !== null);
  const COLUMNS = [
    { title: "Candidate", key: (row) => row.name },
    ...(data.columns.length > 1 ? [{ title: "Shape", key: (row) => (row.column === null ? null : row.column) }] : []),
    { title: "Decision", key: (row) => row.status + row.decision },
    { title: "Gain", key: (row) => row.gain, num: true, text: (row) => percent(row.gain) },
    ...(timed ? [{ title: "Interval", key: (row) => row.low, num: true, text: (row) => (row.low === null ? "–" : percent(row.low).slice(0, -1) + " to " + percent(row.high)) }] : []),
    { title: "Baseline → with ACF", key: (row) => row.mean, num: true, text: (row) => change(row.baseline, row.mean) + (row.mean !== null && row.unit ? " " + row.unit : "") },
    { title: "Correct", key: (row) => row.correctness, text: (row) => row.correctness.replace("_", " ") },
    { title: "Registers", key: (row) => row.registers1, num: true, text: (row) => change(row.registers0, row.registers1) },
    { title: "Spill bytes", key: (row) => row.spills1, num: true, text: (row) => change(row.spills0, row.spills1) },
    { title: "Compile s", key: (row) => row.seconds1, num: true, text: (row) => change(short(row.seconds0), short(row.seconds1)) },
    ...(rows.some((row) => row.pairs !== null) ? [{ title: "Pairs", key: (row) => row.pairs, num: true, text: (row) => number(row.pairs) + (row.voided ? " (+" + row.voided + " void)" : "") }] : []),
  ];
  function short(seconds) {
    return seconds === null ? null : Number(seconds.toPrecision(2));
  }

  const state = { sort: -1, up: true, shown: PAGE, opened: new Set() };
  const body = element("table").tBodies[0];
  const line = element("table").tHead.insertRow();
  COLUMNS.forEach((column, n) => {
    const head = make("th", null, { scope: "col", class: column.num ? "num" : "" });
    const button = make("button", column.title, { type: "button" });
    button.addEventListener("click", () => {
      state.up = state.sort === n ? !state.up : !column.num;
      state.sort = n;
      [...line.cells].forEach((cell) => cell.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", state.up ? "ascending" : "descending");
      fill();
    });
    head.append(button);
    line.append(head);
  });
  [...new Set(rows.map((row) => row.decision))].sort().forEach((one) => element("by-decision").append(new Option(word(one), one)));
  data.columns.forEach((label, n) => element("by-shape").append(new Option(label, String(n))));
  element("by-shape").parentElement.hidden = data.columns.length < 2;

  function chosen() {
    const words = element("find").value.toLowerCase().split(/\s+/).filter(Boolean);
    const decision = element("by-decision").value;
    const shape = element("by-shape").value;
    const found = rows.filter((row) => {
      if (decision && row.decision !== decision) return false;
      if (shape !== "" && String(row.column) !== shape) return false;
      const text = (row.name + " " + row.shape + " " + row.decision + " " + word(row.decision)).toLowerCase();
      return words.every((part) => text.includes(part));
    });
    if (state.sort < 0) return found;
    const { key } = COLUMNS[state.sort];
    const sign = state.up ? 1 : -1;
    return found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (typeof x === "string" ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
    });
  }

  function fill() {
    const found = chosen();
    const visible = found.slice(0, state.shown);
    body.replaceChildren(...visible.flatMap((row) => (state.opened.has(row.index) ? [tableRow(row), panel(row)] : [tableRow(row)])));
    element("count").textContent = found.length === rows.length ? rows.length + (rows.length === 1 ? " row" : " rows") : found.length + " of " + rows.length + " rows";
    element("more").hidden = visible.length === found.length;
    element("more").textContent = "Show all " + found.length + " rows";
  }

  function tableRow(row) {
    const made = make("tr", null, { id: "row-" + row.index });
    for (const column of COLUMNS) {
      if (column.title === "Candidate") {
        const cell = make("td", null, { class: "name" });
        const button = make("button", null, { type: "button", "aria-expanded": String(state.opened.has(row.index)), title: row.name });
        button.append(make("bdi", row.name, { class: "clip" }));
        button.addEventListener("click", () => toggle(row, made, button));
        cell.append(button);
        made.append(cell);
      } else if (column.title === "Shape") {
        const cell = make("td", null, { class: "shape" });
        cell.append(make("bdi", row.shape || "–", { class: "clip", title: row.shape }));
        made.append(cell);
      } else if (column.title === "Decision") {
        made.append(make("td", (row.sign ? row.sign + " " : "") + word(row.decision), { class: "decision s" + row.status }));
      } else {
        made.append(make("td", column.text(row), column.num ? { class: "num" } : {}));
      }
    }
    return made;
  }

  function toggle(row, line, button) {
    const closing = state.opened.has(row.index);
    button.setAttribute("aria-expanded", String(!closing));
    if (closing) {
      state.opened.delete(row.index);
      line.nextElementSibling.remove();
    } else {
      state.opened.add(row.index);
      line.after(panel(row));
    }
  }

  function open(index) {
    element("find").value = element("by-decision").value = element("by-shape").value = "";
    state.opened.add(index);
    if (chosen().findIndex((row) => row.index === index) >= state.shown) state.shown = Infinity;
    fill();
    const line = element("row-" + index);
    line.scrollIntoView({ block: "start" });
    line.querySelector("button").focus({ preventScroll: true });
  }

  for (const id of ["find", "by-decision", "by-shape"]) element(id).addEventListener("input", () => { state.shown = PAGE; fill(); });
  element("more").addEventListener("click", () => { state.shown = Infinity; fill(); });
  fill();

  // --- details of one row ------------------------------------------------------------------------------------
  let unpacked = null;
  function details() {
    if (!unpacked) {
      const bytes = Uint8Array.from(atob(element("details-data").textContent), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      unpacked = new Response(stream).json();
    }
    return unpacked;
  }

  function panel(row) {
    const made = make("tr", null, { class: "panel" });
    const cell = make("td", null, { colspan: COLUMNS.length });
    const inner = make("div", "…", { class: "panel-inner" });
    cell.append(inner);
    made.append(cell);
    details().then((all) => describe(row, all[row.index], inner)).catch((error) => { inner.textContent = "The details cannot be read: " + error; });
    return made;
  }

  function describe(row, found, inner) {
    const region = element("table").parentElement;
    inner.style.maxWidth = Math.max(240, region.clientWidth - 34) + "px";
    const link = make("a", "result.json", { href: row.job.link });
    const first = make("p", found.message + " ");
    first.append(link);
    inner.replaceChildren(first);
    for (const text of [...(found.wrong || []), found.advice]) if (text) inner.append(make("p", text));
    if (found.application) inner.append(make("p", "ACF " + found.applied.replace("_", " ") + ": " + found.application, { class: "note" }));
    if (found.trace) traces(found, inner);
    if (found.kernels) inner.append(kernels(found.kernels));
    inner.append(make("h3", "Run it again"));
    for (const side of ["baseline", "candidate"]) inner.append(make("p", side + ":"), code(found.again[side]));
    for (const side of ["baseline", "candidate"]) {
      const command = (found.commands || {})[side];
      const output = (found.outputs || {})[side];
      if (!command && !output) continue;
      const block = make("details");
      block.append(make("summary", "Compiler, " + side));
      if (command) block.append(code(command));
      if (output) block.append(code(output));
      inner.append(block);
    }
    if (found.benchmark) inner.append(make("p", "benchmark:"), code(found.benchmark));
  }
  function code(text) {
    const made = make("pre");
    made.append(make("code", text));
    return made;
  }

  function kernels(list) {
    const box = make("div", null, { class: "scroll", tabindex: "0", role: "region", "aria-label": "Kernels" });
    const table = make("table", null, { class: "plain" });
    const keys = [...new Set(list.flatMap(([, , before, after]) => Object.keys(before || after || {})))];
    const head = table.createTHead().insertRow();
    head.append(make("th", "Kernel", { scope: "col" }), ...keys.map((key) => make("th", key.replaceAll("_", " "), { scope: "col", class: "num" })));
    const lines = table.createTBody();
    for (const [name, arch, before, after] of list) {
      const made = lines.insertRow();
      const title = make("th", null, { scope: "row" });
      title.append(make("bdi", arch ? name + " (" + arch + ")" : name));
      made.append(title, ...keys.map((key) => make("td", change(at(before, key), at(after, key)), { class: "num" })));
    }
    box.append(table);
    return box;
  }
  const at = (metrics, key) => (metrics && metrics[key] !== undefined ? metrics[key] : null);

  const SHORT = { calibrate: "calibration", screen: "screen" };
  const NAMES = { calibrate: "baseline against itself", screen: "screen", confirm: "fresh process" };
  function traces(found, inner) {
    const trace = found.trace;
    const phase = [];
    const parts = [];
    for (const [name, session, count] of trace.parts) {
      const several = name === "confirm";
      parts.push({ n: phase.length + 0.5, label: several ? (session === 1 ? "fresh 1" : String(session)) : SHORT[name] });
      for (let n = 0; n < count; n += 1) phase.push({ name, session });
    }
    const medians = [];
    const ratios = [];
    let failed = 0;
    phase.forEach((part, n) => {
      const reason = trace.void[n];
      const both = [["baseline", trace.b[n]], [part.name === "calibrate" ? "baseline" : "candidate", trace.c[n]]];
      const where = NAMES[part.name] + (part.session ? " " + part.session : "");
      for (const [side, steps] of both) {
        if (steps !== null) medians.push({ n: n + 1, side, value: steps * 1e-5 * trace.scale, phase: where, void: reason });
        else failed += 1;
      }
      if (trace.b[n] !== null && trace.c[n] !== null && !reason) {
        ratios.push({ ratio: Math.log(trace.b[n] / trace.c[n]), kind: part.name === "calibrate" ? "baseline against itself" : "baseline against candidate" });
      }
    });
    const grid = make("div", null, { class: "grid" });
    const charts = [];
    const figure = (title, build, note) => {
      const made = make("figure");
      const host = make("div", null, { class: "chart" });
      made.append(make("h3", title), host);
      if (note) made.append(make("figcaption", note));
      grid.append(made);
      charts.push([host, build]);
    };
    const unit = trace.unit ? " (" + trace.unit + ")" : "";
    figure("Pairs in the order in which they ran", (width) => {
      const spec = specification("pairs", { pairs: medians, parts }, "Block medians of both sides, by pair");
      spec.layer[2].encoding.y.title += unit;
      return { spec: { ...spec, width, height: 220, autosize: fit }, marks: 2 * medians.length };
    }, failed ? failed + " blocks with failed launches have no median." : "");
    figure("Log ratios of the pairs that count", (width) => {
      const spec = specification("histogram", { ratios }, "Histogram of log ratios");
      return { spec: { ...spec, width: width - 60, height: 78 }, marks: 60 };
    }, "");
    if (trace.plus) {
      const start = phase.findIndex((part) => part.name !== "calibrate");
      const evidence = start < 0 ? [] : ["plus", "minus"].flatMap((key) => trace[key].slice(start).map((steps, n) => ({
        n: start + n + 1, value: steps / 100, what: key === "plus" ? "faster" : "not worth it",
      })));
      const limits = [[trace.screen, "screen passed"], [trace.needed, "enough to keep"], [trace.futile, "enough to stop"]].map(([steps, label], n) => ({ value: steps / 100, label, at: 3 + 82 * n }));
      if (evidence.length) figure("Evidence after each pair", (width) => {
        const spec = specification("evidence", { evidence, limits }, "Evidence after each pair");
        return { spec: { ...spec, width, height: 220, autosize: fit }, marks: 2 * evidence.length };
      }, "A confirmation continues the evidence of the screen.");
    }
    inner.append(grid);
    // Only now do the figures have their widths.
    for (const [host, build] of charts) chart(host, "sides", build);
    if (found.sessions) {
      inner.append(make("p", "By fresh process pair: " + found.sessions.map(([n, count, gain]) => n + ": " + percent(gain) + " (" + count + " pairs)").join(", ") + "."));
    }
  }

  // --- the machine -------------------------------------------------------------------------------------------
  function machine() {
    const found = [];
    const panels = [["clock", "SM clock (MHz)"], ["power", "power (W)"], ["temperature", "temperature (°C)"], ["throttled", "slowed down (s)"]];
    const readings = data.health.map((values) => named(data.health_fields, values));
    const add = (time, what, amount, device, job) => found.push({ time: 1000 * time, what, value: amount, device, candidate: jobs[job].name });
    for (const [key, what] of panels) {
      for (const one of readings) {
        if (one[key] !== null && one[key] !== undefined) add(one.time, what, one[key], one.device, one.job);
      }
    }
    for (const [job, time, count] of data.voids) add(time, "voided pairs", count, null, job);
    const voids = data.voids.reduce((sum, [, , count]) => sum + count, 0);
    const slowed = readings.reduce((sum, one) => sum + (one.throttled || 0), 0);
    const clocks = readings.map((one) => one.clock).filter((clock) => clock !== null && clock !== undefined);
    const note = [
      clocks.length ? "SM clock " + Math.min(...clocks) + " to " + Math.max(...clocks) + " MHz." : "",
      readings.some((one) => typeof one.throttled === "number") ? "Slowed down (power cap, heat) for " + number(slowed) + " s." : "",
      voids ? voids + " pairs were voided because the machine was disturbed." : rows.some((row) => row.pairs) ? "No pair had to be voided." : "",
    ].filter(Boolean).join(" ");
    element("health-note").textContent = note;
    if (!found.length) {
      element("health").parentElement.hidden = !note;
      return;
    }
    // A panel of zeros says less than the sentence.
    const shown = found.filter((one) => one.what !== "slowed down (s)" || slowed > 0);
    chart(element("health"), "status", (width) => {
      const spec = specification("health", { health: shown }, "Clock, power and temperature over the sweep. " + note);
      spec.spec.width = Math.max(160, width - 90);
      return { spec, marks: 2 * shown.length };
    });
  }
  machine();
})();
