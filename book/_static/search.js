"use strict";
// Shows below each result where in its page the words are. The text of a page is a script of its own, because a browser
// fetches nothing for a page that comes from the disk.

const texts = {}; // by page: each script adds its own
const loads = {};

function load(page) {
  return (loads[page] ??= new Promise((done) => {
    const script = document.createElement("script");
    script.src = `texts/${page}.js`;
    script.onload = () => done(texts[page]);
    document.head.append(script);
  }));
}

// The query, or its words as Sphinx's search takes them; in Japanese these are pairs of characters, which may overlap.
function searched() {
  const query = new URLSearchParams(location.search).get("q").trim();
  const escaped = (text) => text.replace(/[^\p{L}\p{N}\s]/gu, "\\$&");
  const terms = splitQuery(query.toLowerCase()).filter((term) => !stopwords.has(term));
  const isPair = (term) => /^[^a-z0-9].$/u.test(term);
  const pairs = terms.filter(isPair).map(([first, second]) => `${first}(?=${second})`);
  const stemmer = new Stemmer();
  const words = terms.filter((term) => !isPair(term)).map((term) => escaped(stemmer.stemWord(term)));
  const patterns = words.map((word) => (/^[a-z]/.test(word) ? `(?<![\\p{L}\\p{N}])${word}\\p{L}*` : word));
  if (pairs.length) patterns.push(`(?:${pairs.join("|")})+.`);
  return new RegExp([escaped(query), ...patterns].join("|"), "giu");
}

// Where most of the words are, from a little before the first of them.
function excerpt(text, pattern, length) {
  const found = [...text.matchAll(pattern)];
  const near = (from) => found.filter((it) => it.index >= from && it.index < from + length);
  const worth = found.map((it) => new Set(near(it.index).map((other) => other[0].slice(0, 3).toLowerCase())).size);
  const best = found[worth.indexOf(Math.max(...worth))]?.index ?? 0;
  let start = Math.max(0, best - Math.floor(length / 4));
  const space = text.lastIndexOf(" ", best - 1);
  if (start > 0 && text.indexOf(" ", start) <= space) start = text.indexOf(" ", start) + 1;
  const part = text.slice(start, start + length);
  return (start > 0 ? "… " : "") + part + (start + length < text.length ? " …" : "");
}

function show(text, result) {
  const pattern = searched();
  const said = excerpt(text, pattern, document.documentElement.lang === "ja" ? 110 : 220);
  const paragraph = document.createElement("p");
  paragraph.className = "context";
  let end = 0;
  for (const match of said.matchAll(pattern)) {
    const mark = document.createElement("mark");
    mark.textContent = match[0];
    paragraph.append(said.slice(end, match.index), mark);
    end = match.index + match[0].length;
  }
  paragraph.append(said.slice(end));
  result.append(paragraph);
}

new MutationObserver((changes) => {
  for (const result of changes.flatMap((change) => [...change.addedNodes])) {
    const link = result.localName === "li" && result.querySelector("a");
    if (link) load(link.getAttribute("href").replace(/\.html(#.*)?$/, "")).then((text) => show(text, result));
  }
}).observe(document.getElementById("search-results"), { childList: true, subtree: true });
