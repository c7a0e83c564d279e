// Every two seconds the page is fetched anew, and the parts that differ are replaced. The server
// alone draws it, so a page without script looks the same.
(() => {
  "use strict";
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
      if (shown.innerHTML !== found.innerHTML) {
        shown.replaceChildren(...document.adoptNode(found).childNodes);
        if (place) document.querySelector(`#${CSS.escape(place)} summary`)?.focus();
      }
    }
    say("Live", "up fresh");
  };
  say("Live", "up");
  setInterval(update, 2000);
  document.addEventListener("visibilitychange", update);
})();
