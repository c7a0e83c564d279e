// The page waits for the next change, and then its parts are replaced. The server alone draws it, so
// a page without script looks the same. What a person has typed or opened stays.
(() => {
  "use strict";
  const live = document.getElementById("live");
  let version = live.dataset.version;
  const say = (text, kind) => {
    if (live.textContent !== text) live.textContent = text;
    live.className = "state " + kind;
  };
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  const log = document.querySelector("[data-part=log]");
  const toEnd = () => { log.scrollTop = log.scrollHeight; };
  const parts = (page) => page.querySelectorAll("[data-part]");
  const drawn = new Map();
  for (const part of parts(document)) drawn.set(part.dataset.part, part.innerHTML);

  const keepOpen = (shown, found) => {
    for (const one of shown.querySelectorAll("details[id]")) {
      const same = found.querySelector(`#${CSS.escape(one.id)}`);
      if (same) same.open = one.open;
    }
  };
  // A child stays as long as its stamp is the same.
  const replaceKeyed = (shown, found) => {
    const known = new Map([...shown.children].map((one) => [one.id, one]));
    let at = shown.firstElementChild;
    for (let one of [...found.children]) {
      const same = known.get(one.id);
      if (same && same.dataset.stamp === one.dataset.stamp) {
        one = same;
      } else if (same && same.tagName === "DETAILS" && same.dataset.stamp) {
        one.open = same.open;
      }
      if (one === at) at = at.nextElementSibling;
      else shown.insertBefore(one, at);
    }
    while (at) {
      const next = at.nextElementSibling;
      at.remove();
      at = next;
    }
  };
  const take = (text) => {
    const page = document.adoptNode(new DOMParser().parseFromString(text, "text/html").documentElement);
    const fresh = page.querySelector("#live");
    if (!fresh) throw new Error("another page");
    version = fresh.dataset.version;
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
    document.title = page.querySelector("title").textContent;
    for (const found of parts(page)) {
      const name = found.dataset.part;
      const shown = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
      const html = found.innerHTML;
      if (!shown || drawn.get(name) === html) continue;
      drawn.set(name, html);
      if ("keyed" in found.dataset) {
        replaceKeyed(shown, found);
      } else {
        keepOpen(shown, found);
        shown.replaceChildren(...found.childNodes);
      }
    }
    filter();
    if (atEnd) toEnd();
  };

  const follow = async () => {
    for (;;) {
      while (document.hidden) await wait(250);
      const address = new URL(location.href);
      address.hash = "";
      address.searchParams.set("after", version);
      try {
        const answer = await fetch(address, { cache: "no-store", signal: AbortSignal.timeout(60000) });
        if (answer.status === 403) {
          say("This page is of an earlier start: open the new URL", "down");
          return;
        }
        if (!answer.ok) throw new Error(String(answer.status));
        take(await answer.text());
        say("Live", "up");
        await wait(100);
      } catch {
        say("No answer: does the command still run?", "down");
        await wait(1000);
      }
    }
  };

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    event.preventDefault();
    const button = event.submitter;
    const error = form.querySelector(".error");
    if (button) button.disabled = true;
    let told = "";
    try {
      const data = new URLSearchParams(new FormData(form));
      if (button && button.name) data.set(button.name, button.value);
      const answer = await fetch(form.getAttribute("action"), {
        method: "POST",
        headers: { Accept: "application/json" },
        body: data,
      });
      const found = await answer.json().catch(() => ({ error: `the page answered with ${answer.status}` }));
      told = found.error || "";
    } catch {
      told = "no answer: does the command still run?";
    }
    if (error) error.textContent = told;
    if (button) button.disabled = false;
  });

  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.form) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
  });

  // Suggestions of the server for an argument.
  let asking = 0;
  document.addEventListener("input", (event) => {
    const field = event.target;
    if (field.id === "filter") filter();
    if (!field.dataset.suggests) return;
    const mine = ++asking;
    setTimeout(async () => {
      if (mine !== asking) return;
      const data = new URLSearchParams(new FormData(field.form));
      data.set("argument", field.dataset.suggests);
      const answer = await fetch("complete", { method: "POST", body: data }).catch(() => null);
      if (!answer || !answer.ok || mine !== asking) return;
      const options = (await answer.json()).values.map((value) => {
        const option = document.createElement("option");
        option.value = value;
        return option;
      });
      field.list.replaceChildren(...options);
    }, 150);
  });

  const typed = document.getElementById("filter");
  const filter = () => {
    const wanted = typed.value.trim().toLowerCase();
    for (const one of document.querySelectorAll("nav li")) {
      one.hidden = !one.textContent.toLowerCase().includes(wanted);
    }
  };

  say("Live", "up");
  filter();
  toEnd();
  follow();
})();
