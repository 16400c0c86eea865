"use strict";
(() => {
  const EVERY = 5000, TYPING = 150, STALE = 20000;
  const pause = document.getElementById("pause");
  const lost = document.getElementById("lost");
  const input = document.getElementById("q");
  const served = new Map();
  let paused = sessionStorage.getItem("paused") === "yes";
  let asking = null, typing = 0, answeredAt = Date.now();

  const live = (root) => root.querySelectorAll("[data-live]");

  // Each command gets a button that copies it.
  const decorate = (root) => {
    for (const command of root.querySelectorAll(".command")) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = "Copy";
      button.addEventListener("click", () => copy(command.querySelector("code"), button));
      command.append(button);
    }
  };
  const copy = async (code, button) => {
    let done = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      // Only secure origins have a clipboard.
      getSelection().selectAllChildren(code);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  };

  // The focused element is found again by its id, by its address, or by its place among the same elements.
  const focused = (part) => {
    const element = document.activeElement;
    if (!element || element === part || !part.contains(element)) return () => null;
    if (element.id) return () => document.getElementById(element.id);
    const selector = element.localName + (element.hasAttribute("href") ? `[href="${CSS.escape(element.getAttribute("href"))}"]` : "");
    const place = [...part.querySelectorAll(selector)].indexOf(element);
    return (fresh) => fresh.querySelectorAll(selector)[place] ?? null;
  };
  const replace = (old, fresh) => {
    const find = focused(old);
    const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
    const scrolled = [...old.querySelectorAll(".scroll[id]")].map((each) => [each.id, each.scrollLeft]);
    old.replaceWith(fresh);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, left] of scrolled) { const each = document.getElementById(id); if (each) each.scrollLeft = left; }
    decorate(fresh);
    find(fresh)?.focus({preventScroll: true});
  };
  // Only what is not as it was is replaced, so that a selection and the reader's place stay.
  const show = (text) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const fresh = new Map([...live(page)].map((part) => [part.id, part]));
    const known = [...live(document)];
    if (known.length !== fresh.size || known.some((part) => !fresh.has(part.id))) {
      location.reload();
      return;
    }
    const [x, y] = [scrollX, scrollY];
    for (const old of known) {
      const part = fresh.get(old.id), html = part.outerHTML;
      if (served.get(old.id) === html) continue;
      served.set(old.id, html);
      replace(old, part);
    }
    document.title = page.title;
    document.querySelector("link[rel=icon]").href = page.querySelector("link[rel=icon]").href;
    scrollTo(x, y);
  };

  // A page that is not renewed says nothing of how the feed is now: neither its word nor its colour stays.
  const age = (why) => {
    const word = document.querySelector("#headline h1"), icon = document.querySelector("link[rel=icon]");
    lost.textContent = `${why} for ${Math.round((Date.now() - answeredAt) / 1000)} s; this page is as old as that.`;
    lost.hidden = false;
    if (document.documentElement.classList.contains("stale")) return;
    document.documentElement.classList.add("stale");
    if (word) word.textContent = `? unknown, was ${word.textContent.trim().replace(/^\S+ /, "")}`;
    document.title = `unknown · ${document.title}`;
    icon.href = icon.href.replace(/fill='%23\w+'/, "fill='%236e7781'");
    served.delete("headline");
  };
  const load = async (address) => {
    asking?.abort();
    const mine = asking = new AbortController();
    const limit = setTimeout(() => mine.abort("late"), 3 * EVERY);
    try {
      const answer = await fetch(address, {signal: mine.signal, cache: "no-store"});
      const text = await answer.text();
      if (!answer.headers.get("content-type")?.startsWith("text/html")) throw new Error(text.slice(0, 200));
      if (asking !== mine) return;
      answeredAt = Date.now();
      lost.hidden = true;
      document.documentElement.classList.remove("stale");
      show(text);
    } catch (fault) {
      if (asking !== mine) return;
      age("The program has not answered");
    } finally {
      clearTimeout(limit);
      if (asking === mine) asking = null;
    }
  };
  const go = (address, how) => {
    history[how](null, "", address);
    return load(location.href);
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const to = new URL(link.href);
    // Another choice on the same page; all else is the browser's business.
    if (to.origin !== location.origin || to.pathname !== location.pathname || !link.getAttribute("href").startsWith("?")) return;
    event.preventDefault();
    const next = new URL(to);
    next.hash = "";
    if (input) input.value = next.searchParams.get("q") ?? "";
    go(next, "pushState").then(() => {
      if (to.hash && !link.closest("#list, #states")) document.getElementById(to.hash.slice(1))?.focus();
    });
  });
  if (input) {
    const filter = () => {
      clearTimeout(typing);
      const next = new URL(location.href);
      next.searchParams.delete("page");
      if (input.value.trim()) next.searchParams.set("q", input.value.trim()); else next.searchParams.delete("q");
      if (next.href !== location.href) go(next, "replaceState");
    };
    input.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(filter, TYPING); });
    input.form.addEventListener("submit", (event) => { event.preventDefault(); filter(); });
    input.form.querySelector("button").hidden = true;
  }
  addEventListener("popstate", () => {
    if (input) input.value = new URL(location.href).searchParams.get("q") ?? "";
    load(location.href);
  });

  const shown = () => {
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Resume updates" : "Pause updates";
  };
  pause.addEventListener("click", () => {
    paused = !paused;
    sessionStorage.setItem("paused", paused ? "yes" : "no");
    shown();
    if (!paused) load(location.href);
  });
  const tick = () => {
    const selecting = getSelection().type === "Range";
    if (!paused && !document.hidden && !selecting && !asking) load(location.href);
    else if (Date.now() - answeredAt > STALE) age("Nothing was updated");
  };
  document.documentElement.classList.add("live");
  for (const part of live(document)) served.set(part.id, part.outerHTML);
  decorate(document);
  pause.hidden = false;
  shown();
  setInterval(tick, EVERY);
  document.addEventListener("visibilitychange", tick);
})();
