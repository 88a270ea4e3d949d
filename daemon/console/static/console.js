// What pages do beside being read: they stay up to date, ages stay fresh, and what destroys asks first.
// Without this script everything can be read, and every form works.
"use strict";

(() => {
  const MINUTE = 60, HOUR = 3600, DAY = 86400;

  // --- ages ------------------------------------------------------------------------------------------------

  // As `span` of `kit/wording.py` has it, in one unit.
  const words = (seconds) => {
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < MINUTE) return `${whole}s`;
    if (whole < HOUR) return `${Math.floor(whole / MINUTE)}m`;
    return whole < 2 * DAY ? `${Math.floor(whole / HOUR)}h` : `${Math.floor(whole / DAY)}d`;
  };

  const freshen = (within) => {
    const now = Date.now() / 1000;
    for (const each of within.querySelectorAll("time[data-since], time[data-age], time[data-until]")) {
      const at = Date.parse(each.dateTime) / 1000;
      let text = words(now - at);
      if ("since" in each.dataset) text = `${text} ago`;
      if ("until" in each.dataset) text = `in ${words(at - now)}`;
      if (each.textContent !== text) each.textContent = text;
    }
  };

  setInterval(() => freshen(document), 5000);

  // On a phone, the navigation is wider than the screen.
  document.querySelector("header nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // --- asking first ----------------------------------------------------------------------------------------

  const made = (name, text, attributes = {}) => {
    const element = document.createElement(name);
    element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    return element;
  };

  // The dialog has a form of its own with what was filled in: the page may replace the original meanwhile.
  const ask = (form, button) => {
    const dialog = document.createElement("dialog");
    const told = button && "confirm" in button.dataset ? button : form;
    const question = made("p", told.dataset.confirm, { id: "question" });
    const action = button && button.getAttribute("formaction") || form.getAttribute("action");
    const copy = made("form", "", { method: "post", action, class: "controls" });
    if (form.dataset.busy) copy.dataset.busy = form.dataset.busy;
    for (const [name, value] of new FormData(form, button)) copy.append(made("input", "", { type: "hidden", name, value }));
    const cancel = made("button", "Cancel", { type: "button" });
    const go = made("button", button ? button.textContent : "Go on", { type: "submit", class: "destructive" });
    cancel.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => { dialog.remove(); if (button && button.isConnected) button.focus(); });
    copy.append(cancel, go);
    dialog.setAttribute("aria-labelledby", "question");
    dialog.append(question, copy);
    document.body.append(dialog);
    dialog.showModal();
    cancel.focus();
  };

  document.addEventListener("submit", (event) => {
    const form = event.target, button = event.submitter, { busy, sent } = form.dataset;
    const confirm = form.dataset.confirm || button && button.dataset.confirm;
    if (confirm || sent) event.preventDefault();
    if (confirm) ask(form, button);
    else if (busy && button && !sent) {
      form.dataset.sent = button.textContent;
      button.textContent = busy;
      button.setAttribute("aria-disabled", "true");
    }
  });

  document.addEventListener("click", (event) => {
    if (!event.target.matches(".message > .closes")) return;
    event.preventDefault();
    event.target.parentElement.remove();
    document.querySelector("main").focus();
  });

  // --- lines that have the words of a field ----------------------------------------------------------------

  const sift = (field) => {
    const words = field.value.toLowerCase();
    for (const each of document.querySelectorAll(field.dataset.sift)) each.hidden = !each.textContent.toLowerCase().includes(words);
  };

  document.addEventListener("input", ({ target }) => { if ("sift" in target.dataset) sift(target); });

  // --- faults while typing ---------------------------------------------------------------------------------

  let typing = 0;

  const check = async (field) => {
    const mine = typing, body = new URLSearchParams(new FormData(field.form));
    const answer = await fetch("/ui/check", { method: "POST", body });
    if (mine === typing && answer.ok) document.getElementById(field.dataset.check).replaceChildren(parsed(await answer.text()));
  };

  document.addEventListener("input", ({ target }) => {
    if (!("check" in target.dataset)) return;
    clearTimeout(typing);
    typing = setTimeout(check, 400, target);
  });

  // --- keeping what a person is doing when a piece of the page is replaced -------------------------------

  const CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex]";
  const FIELDS = "input:not([type=hidden]), select, textarea";

  const isChanged = (field) => {
    if (field.form && "typed" in field.form.dataset) return true; // The daemon has filled it in.
    if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
    if (field.tagName === "SELECT") return [...field.options].some((each) => each.selected !== each.defaultSelected);
    return field.value !== field.defaultValue;
  };

  const twin = (old, before, after, selector) => {
    if (old.id) return after.querySelector(`#${CSS.escape(old.id)}`);
    return [...after.querySelectorAll(selector)][[...before.querySelectorAll(selector)].indexOf(old)];
  };

  const replace = (before, after) => {
    const active = document.activeElement;
    const focused = before.contains(active) ? twin(active, before, after, CONTROLS) : null;
    for (const old of before.querySelectorAll(FIELDS)) {
      const field = twin(old, before, after, FIELDS);
      if (!field || field.name !== old.name || !isChanged(old)) continue;
      if (old.type === "checkbox" || old.type === "radio") field.checked = old.checked;
      else field.value = old.value;
    }
    for (const old of before.querySelectorAll("details")) {
      const details = twin(old, before, after, "details");
      if (details) details.open = old.open;
    }
    const scrolled = [...before.querySelectorAll("*")].filter((each) => each.scrollTop || each.scrollLeft)
      .map((each) => [twin(each, before, after, "*"), each.scrollTop, each.scrollLeft]);
    const selection = active && "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null;
    before.replaceWith(after);
    for (const [element, top, left] of scrolled) if (element) { element.scrollTop = top; element.scrollLeft = left; }
    if (focused) {
      focused.focus({ preventScroll: true });
      try { if (selection && selection[0] !== null) focused.setSelectionRange(...selection); } catch { /* has none */ }
    }
  };

  // --- going to a place by a few letters ---------------------------------------------------------------

  const find = document.querySelector("[data-find]");
  let asked = 0;

  const close = () => { const list = document.querySelector(".find > #found"); if (list) list.remove(); };

  const look = async () => {
    const mine = ++asked, words = find.value.trim();
    if (!words) { close(); return; }
    const answer = await fetch(`/ui/find?q=${encodeURIComponent(words)}`);
    const list = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("found");
    if (mine !== asked || !list) return;
    for (const each of list.querySelectorAll("[id]")) each.removeAttribute("id");
    close();
    for (const page of document.querySelectorAll("header :is(nav a, a[hidden])")) {
      if (!page.textContent.trim().toLowerCase().startsWith(words.toLowerCase())) continue;
      const item = document.createElement("li"), link = made("a", page.textContent.trim(), { href: page.href });
      item.append(link);
      list.prepend(item);
    }
    if (list.children.length) find.form.append(list);
  };

  if (find) {
    find.addEventListener("input", look);
    find.form.addEventListener("keydown", (event) => {
      const links = [find, ...find.form.querySelectorAll("#found a")];
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        links[(links.indexOf(document.activeElement) + step + links.length) % links.length].focus();
      } else if (event.key === "Escape") {
        close();
        find.focus();
      } else if (event.key === "Enter" && document.activeElement === find && links[1]) {
        event.preventDefault();
        links[1].click();
      }
    });
    find.form.addEventListener("focusout", (event) => { if (!find.form.contains(event.relatedTarget)) close(); });
    document.addEventListener("keydown", (event) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); find.focus(); find.select(); }
    });
  }

  // --- staying up to date ----------------------------------------------------------------------------------

  const parsed = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };

  const update = (holder, { order, changed = {} }) => {
    for (const [id, html] of Object.entries(changed)) {
      const before = document.getElementById(id), after = parsed(html);
      if (!after) continue;
      freshen(after);
      after.classList.add("arrived");
      if (before && holder.contains(before)) replace(before, after);
      else holder.append(after);
    }
    if (!order) return;
    const wanted = new Set(order);
    for (const each of [...holder.children]) if (!wanted.has(each.id)) each.remove();
    order.forEach((id, at) => {
      const element = document.getElementById(id), there = holder.children[at];
      if (!element || element === there) return;
      const active = element.contains(document.activeElement) ? document.activeElement : null;
      holder.insertBefore(element, there || null);
      if (active) active.focus({ preventScroll: true });
    });
  };

  const live = document.body.dataset.live, state = document.getElementById("live-state");
  let source = null, address = live;

  const say = (text) => { if (state && state.textContent !== text) state.textContent = text; };

  const follow = () => {
    if (!live || source || document.hidden) return;
    source = new EventSource(address);
    // From here on the browser has more than the page that was sent: whoever comes back is told everything.
    address = live.replace(/([?&])since=[^&]*/, "$1since=");
    source.onopen = () => { document.body.dataset.state = "live"; say(""); };
    source.onmessage = (event) => {
      for (const [id, changes] of Object.entries(JSON.parse(event.data))) {
        const holder = document.getElementById(id);
        if (holder) update(holder, changes);
      }
      document.querySelectorAll("[data-sift]").forEach(sift);
    };
    source.addEventListener("over", () => {
      leave();
      address = null;
      say("This page is no longer updated: its session or its subject has ended. Reload the page.");
    });
    source.onerror = () => {
      document.body.dataset.state = "lost";
      const gone = source && source.readyState === EventSource.CLOSED;
      say(gone ? "The daemon does not know this browser any longer. Run mcpd ui to open the console again."
        : "The daemon does not answer; this page shows the last known state. Trying again.");
      if (gone) leave();
    };
  };

  const leave = () => { if (source) source.close(); source = null; };

  // A browser has six connections to a daemon: pages that nobody sees take none.
  document.addEventListener("visibilitychange", () => { if (document.hidden) leave(); else if (address) follow(); });
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    follow();
    for (const form of document.querySelectorAll("[data-sent]")) {
      const button = form.querySelector("[aria-disabled]");
      button.textContent = form.dataset.sent;
      button.removeAttribute("aria-disabled");
      delete form.dataset.sent;
    }
  });
  follow();
})();
