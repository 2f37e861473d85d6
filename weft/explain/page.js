"use strict";
const root = document.documentElement;
const all = (selector, under = document) => [...under.querySelectorAll(selector)];
const words = (element, name) => (element.dataset[name] || "").split(" ").filter(Boolean);
const arrows = JSON.parse(document.getElementById("arrows").textContent);
const told = document.getElementById("told");
const silence = told.innerHTML;

/* What belongs to a line, a statement or an arrow lights up with it. */
function related(element) {
  const nodes = new Set([...words(element, "node"), ...words(element, "nodes")]);
  const near = new Set(words(element, "arrows").map(Number));
  const pointed = near.size > 0;
  arrows.forEach((arrow, k) => {
    if (near.has(k)) { nodes.add(arrow.source); nodes.add(arrow.sink); }
    else if (!pointed && (nodes.has(arrow.source) || nodes.has(arrow.sink))) near.add(k);
  });
  return { nodes, near, pointed };
}

function light(element) {
  const { nodes, near, pointed } = related(element);
  all("[data-node]").forEach((n) => n.classList.toggle("lit", nodes.has(n.dataset.node)));
  all("[data-nodes]").forEach((n) => n.classList.toggle("lit", words(n, "nodes").some((s) => nodes.has(s))));
  all("[data-arrows]").forEach((n) => n.classList.toggle("lit", words(n, "arrows").some((k) => near.has(Number(k)))));
  const shown = arrows.filter((_, k) => near.has(k));
  told.replaceChildren(...shown.map((arrow) => Object.assign(document.createElement("p"), { textContent: arrow.told })));
  if (!shown.length) told.innerHTML = silence;
  return pointed;
}

function darken() {
  all(".lit").forEach((n) => n.classList.remove("lit"));
  told.innerHTML = silence;
}

const lights = (event) => event.target.closest("[data-node], [data-nodes], [data-arrows]");
for (const [enter, leave] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
  document.addEventListener(enter, (event) => { const found = lights(event); if (found) light(found); });
  document.addEventListener(leave, (event) => { if (lights(event)) darken(); });
}

/* A loop's verdict opens what there is to say of it. */
for (const button of all(".verdict")) {
  const why = document.getElementById(button.getAttribute("aria-controls"));
  button.addEventListener("click", () => {
    why.hidden = !why.hidden;
    button.setAttribute("aria-expanded", String(!why.hidden));
  });
}

/* Tabs: the arrow keys go from one to the next. */
const tabs = all('[role="tab"]');
function choose(tab) {
  for (const other of tabs) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    document.getElementById(other.getAttribute("aria-controls")).hidden = !chosen;
  }
}
tabs.forEach((tab, k) => {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) { const next = tabs[(k + step + tabs.length) % tabs.length]; choose(next); next.focus(); }
  });
});

/* Light or dark: as the system has it, until the reader chooses. */
document.getElementById("theme").addEventListener("click", () => {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
});
