// A part stays as it is while its reader presses a pointer: a click whose target is replaced between press and release is lost.
// A list also stays while its reader has chosen some of it, or is in it with the keyboard. Both show what has come meanwhile
// once that ends.
let pressed = false;
const waiting = new Map(); // what shows the newest of a part that is kept

function isKept(part) {
  return pressed || part.matches("[data-keep-chosen]") && (Boolean(part.querySelector("input:checked")) || part.contains(document.activeElement));
}

function showWaiting() {
  for (const [part, show] of waiting) {
    if (!isKept(part)) {
      waiting.delete(part);
      show();
    }
  }
}

document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const part = event.target;
  if (part.matches(".charts")) { // in which nothing can be pressed
    return;
  }
  waiting.delete(part);
  if (isKept(part)) {
    event.preventDefault();
    waiting.set(part, () => htmx.swap(part, event.detail.data, { swapStyle: "innerHTML" }));
  }
});

// What a stream's end fetches replaces the whole page, and is fetched again.
document.addEventListener("htmx:beforeSwap", (event) => {
  const asks = event.detail.requestConfig.elt;
  const trigger = asks.getAttribute("hx-trigger");
  if (pressed && trigger?.startsWith("sse:")) {
    event.detail.shouldSwap = false;
    waiting.set(asks, () => htmx.trigger(asks, trigger));
  }
});

document.addEventListener("pointerdown", (event) => { pressed = event.button === 0; });

for (const type of ["pointerup", "pointercancel", "contextmenu"]) {
  document.addEventListener(type, () => setTimeout(() => { // after the click
    pressed = false;
    showWaiting();
  }));
}

for (const type of ["change", "focusout"]) {
  document.addEventListener(type, () => setTimeout(showWaiting)); // when the focus is where it goes
}

// A hidden page follows nothing: without HTTP/2 a browser has six connections to a server, for all of its tabs. A page that is shown
// again gets all that has changed meanwhile.
const streams = new Map(); // the open stream of an element
const paused = new Set();

function pause() {
  for (const [element, source] of streams) {
    if (source.readyState !== EventSource.CLOSED) {
      source.close();
      paused.add(element);
    }
  }
  streams.clear();
}

document.addEventListener("htmx:sseOpen", (event) => {
  streams.set(event.target, event.detail.source);
  if (document.hidden) {
    pause();
  }
});

document.addEventListener("htmx:sseClose", (event) => { streams.delete(event.target); });

document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    pause();
    return;
  }
  for (const element of paused) {
    for (const part of [element, ...element.querySelectorAll("[sse-swap]")]) {
      htmx.trigger(part, "htmx:afterProcessNode"); // with which sse.js opens the stream, and gives its parts to it
    }
  }
  paused.clear();
});

// An output that shows its end goes on to show it.
document.addEventListener("htmx:beforeSwap", followEnd);
document.addEventListener("htmx:sseBeforeMessage", followEnd);
document.addEventListener("htmx:afterSwap", showEnd);
document.addEventListener("htmx:sseMessage", showEnd);
document.addEventListener("DOMContentLoaded", () => {
  for (const output of document.querySelectorAll("[sse-swap] > pre")) {
    output.scrollTop = output.scrollHeight;
  }
});

function followEnd(event) {
  const output = event.target.querySelector(":scope > pre");
  event.target.atEnd = !output || output.scrollTop + output.clientHeight >= output.scrollHeight - 4;
}

function showEnd(event) {
  const output = event.target.querySelector(":scope > pre");
  if (output && event.target.atEnd) {
    output.scrollTop = output.scrollHeight;
  }
}

// Curves and formulas need large scripts. A page that has any loads them, one after the other.
const parts = {
  ".charts": { files: ["uplot.min.css", "uplot.min.js", "curves.js"], keepRoom, show: (element) => curves(element) },
  ".math": { files: ["katex/katex.min.css", "katex/katex.min.js", "math.js"], show: (element) => formula(element) },
};

// Charts have their room before they are drawn, so that nothing below them moves then.
function keepRoom(charts) {
  if (!charts.plots) {
    const { curves } = JSON.parse(charts.nextElementSibling.textContent);
    charts.replaceChildren(...curves.map(() => document.createElement("figure")));
  }
}

function load(file) {
  const style = file.endsWith(".css");
  const element = document.createElement(style ? "link" : "script");
  Object.assign(element, style ? { rel: "stylesheet", href: "/static/" + file } : { src: "/static/" + file });
  return new Promise((loaded, failed) => {
    element.onload = loaded;
    element.onerror = failed;
    document.head.append(element);
  });
}

// A stream may bring curves before their scripts are there.
document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const charts = event.target;
  if (charts.matches(".charts")) {
    event.preventDefault();
    charts.nextElementSibling.textContent = event.detail.data;
    keepRoom(charts);
    parts[".charts"].loaded?.then(() => curves(charts));
  }
});

htmx.onLoad(async (root) => {
  for (const [selector, part] of Object.entries(parts)) {
    const elements = [...root.querySelectorAll(selector), ...(root.matches(selector) ? [root] : [])];
    if (elements.length > 0) {
      elements.forEach((element) => part.keepRoom?.(element));
      part.loaded ??= part.files.reduce((before, file) => before.then(() => load(file)), Promise.resolve());
      await part.loaded;
      elements.forEach(part.show);
    }
  }
});
