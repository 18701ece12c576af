"use strict";
// Copies code, shrinks formulas to the width of a phone, and lets the keyboard scroll what is wider than the screen.

const WORDS = {
  en: { copy: "Copy", copied: "Copied", pre: "Code, scrolls sideways", formula: "Formula, scrolls sideways", table: "Table, scrolls sideways" },
  ja: { copy: "コピー", copied: "コピーしました", pre: "コード（横にスクロール）", formula: "数式（横にスクロール）", table: "表（横にスクロール）" },
}[document.documentElement.lang];

// furo's labels, which it does not translate
const LABELS = {
  ja: {
    "#__navigation": "サイドバーの目次を開閉する",
    "#__toc": "このページの目次を開閉する",
    ".theme-toggle": "配色を切り替える（ライト・ダーク・自動）",
    ".toctree-checkbox": "下の階層を開閉する",
  },
}[document.documentElement.lang];

const SMALLEST = 0.75; // of a formula's size
const BOXES = { "article pre": "pre", ".katex-display": "formula", ".table-wrapper": "table" };

// The commands only, if there are prompts. Line numbers are no part of the code.
function code(box) {
  const copy = box.cloneNode(true);
  for (const number of copy.querySelectorAll(".linenos")) number.remove();
  const lines = copy.textContent.trimEnd().split("\n");
  const commands = lines.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
  return (commands.length ? commands : lines).join("\n");
}

function addButton(box) {
  const button = document.createElement("button");
  button.className = "copy";
  button.type = "button";
  button.textContent = WORDS.copy;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code(box));
    button.textContent = WORDS.copied;
    setTimeout(() => (button.textContent = WORDS.copy), 2000);
  });
  box.after(button);
}

// A formula that is a little too wide gets smaller; a wider one continues below.
function shrink(box) {
  const room = () => box.clientWidth / box.scrollWidth;
  box.style.fontSize = "";
  box.classList.add("whole");
  if (room() < SMALLEST) box.classList.remove("whole");
  if (room() < 1) box.style.fontSize = `${Math.max(SMALLEST, room() - 0.005)}em`;
}

function fit(box, label) {
  if (label === "formula") shrink(box);
  const attributes = { tabindex: "0", role: "group", "aria-label": WORDS[label] };
  for (const [name, value] of Object.entries(attributes)) {
    if (box.scrollWidth > box.clientWidth) box.setAttribute(name, value);
    else box.removeAttribute(name);
  }
}

const kinds = new Map();
for (const [selector, label] of Object.entries(BOXES)) {
  for (const box of document.querySelectorAll(selector)) kinds.set(box, label);
}
const fitAll = (boxes) => boxes.forEach((box) => fit(box, kinds.get(box)));
const observer = new ResizeObserver((changes) => fitAll(changes.map((change) => change.target)));
for (const box of kinds.keys()) observer.observe(box);
document.fonts.addEventListener("loadingdone", () => fitAll([...kinds.keys()]));

// a page that comes over plain HTTP from another machine has no clipboard
if (navigator.clipboard) document.querySelectorAll("article pre").forEach(addButton);

for (const [selector, label] of Object.entries(LABELS ?? {})) {
  for (const part of document.querySelectorAll(selector)) part.setAttribute("aria-label", label);
}
