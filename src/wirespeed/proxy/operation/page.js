// Every two seconds the page is fetched anew, and the parts that differ are replaced. The server
// alone draws it, so a page without script looks the same.
(() => {
  "use strict";
  const filter = document.getElementById("filter");
  const orders = new Map();            // by the name of a table: the column, and 1 or -1
  const UNITS = {
    "": 1, k: 1e3, M: 1e6, G: 1e9, B: 1, KiB: 1024, MiB: 1048576, GiB: 1073741824,
    "µs": 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400,
  };
  const valueOf = (row, column) => {
    const text = row.children[column]?.textContent.trim() ?? "";
    if (text === "—") return -1;
    let value = 0;
    for (const part of text.match(/[\d.]+ ?[^\d\s]*\s*/g) ?? []) {      // "1.5 KiB", "2 min 5 s"
      value += Number.parseFloat(part) * (UNITS[part.replace(/[\d.\s]/g, "")] ?? NaN);
    }
    return text === "" || Number.isNaN(value) || !/^\d/.test(text) ? text.toLowerCase() : value;
  };
  const arrange = () => {
    const wanted = filter.value.trim().toLowerCase();
    for (const table of document.querySelectorAll("main table")) {
      const order = orders.get(table.getAttribute("aria-label"));
      const heads = table.querySelectorAll("thead th");
      heads.forEach((head, column) => {
        head.classList.add("sortable");
        if (order && order.column === column) {
          head.setAttribute("aria-sort", order.way > 0 ? "ascending" : "descending");
        } else {
          head.removeAttribute("aria-sort");
        }
      });
      const body = table.tBodies[0];
      const rows = [...body.rows];
      if (order) {
        rows.sort((a, b) => {
          const x = valueOf(a, order.column), y = valueOf(b, order.column);
          if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
          return (x < y ? -1 : x > y ? 1 : 0) * order.way;
        });
        body.append(...rows);
      }
      for (const row of rows) row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
      table.parentElement.hidden = rows.length > 0 && rows.every((row) => row.hidden);
    }
    for (const one of document.querySelectorAll(".actions[data-server]")) one.hidden = false;
  };
  const act = async (button) => {
    const name = button.closest("[data-server]").dataset.server;
    const action = button.dataset.action;
    if (!confirm(`${action} ${name}?`)) return;
    const place = `${location.origin}/${action}/${encodeURIComponent(name)}`;
    const answer = await fetch(place, { method: "POST", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) alert(await answer.text());
    update();
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-action]");
    if (button) act(button).catch((error) => alert(String(error)));
    const head = event.target.closest("main thead th");
    if (!head) return;
    const name = head.closest("table").getAttribute("aria-label");
    const column = [...head.parentElement.children].indexOf(head);
    const before = orders.get(name);
    const way = before && before.column === column ? -before.way : head.classList.contains("number") ? -1 : 1;
    orders.set(name, { column, way });
    arrange();
  });
  filter.hidden = false;
  filter.addEventListener("input", arrange);
  const live = document.getElementById("live");
  const say = (text, kind) => {
    if (live.textContent !== text) live.textContent = text;
    live.className = "state live " + kind;
  };
  const update = async () => {
    if (document.hidden) return;
    let text;
    try {
      const answer = await fetch(location.origin + "/", { cache: "no-store", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(String(answer.status));
      text = await answer.text();
    } catch {
      say("No answer: these numbers are old", "down");
      return;
    }
    const page = new DOMParser().parseFromString(text, "text/html");
    document.title = page.title;
    for (const found of page.querySelectorAll("[data-part]")) {
      const shown = document.querySelector(`[data-part="${CSS.escape(found.dataset.part)}"]`);
      if (!shown) continue;
      for (const one of shown.querySelectorAll("details[open][id]")) {
        const same = found.querySelector(`#${CSS.escape(one.id)}`);
        if (same) same.open = true;
      }
      const focused = shown.contains(document.activeElement) ? document.activeElement : null;
      const place = focused && focused.closest("[id]")?.id;
      if (shown.dataset.text !== found.innerHTML) {
        shown.dataset.text = found.innerHTML;
        shown.replaceChildren(...document.adoptNode(found).childNodes);
        if (place) document.querySelector(`#${CSS.escape(place)} summary`)?.focus();
      }
    }
    arrange();
    say("Live", "up fresh");
  };
  arrange();
  say("Live", "up");
  setInterval(update, 2000);
  document.addEventListener("visibilitychange", update);
})();
