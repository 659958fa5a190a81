// A list stays as it is while its reader has chosen some of it, or is in it with the keyboard. It shows what has come meanwhile
// once that ends.
function isKept(list) {
  return Boolean(list.querySelector("input:checked")) || list.contains(document.activeElement);
}

document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const list = event.target.closest("[data-keep-chosen]");
  if (list && isKept(list)) {
    event.preventDefault();
    list.waiting = event.detail.data;
  } else if (list) {
    delete list.waiting;
  }
});

for (const type of ["change", "focusout"]) {
  document.addEventListener(type, (event) => {
    const list = event.target.closest("[data-keep-chosen]");
    setTimeout(() => { // when the focus is where it goes
      if (list?.waiting !== undefined && !isKept(list)) {
        htmx.swap(list, list.waiting, { swapStyle: "innerHTML" });
        delete list.waiting;
      }
    });
  });
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
  ".charts": { files: ["uplot.min.css", "uplot.min.js", "curves.js"], show: (element) => curves(element) },
  ".math": { files: ["katex/katex.min.css", "katex/katex.min.js", "math.js"], show: (element) => formula(element) },
};

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
    parts[".charts"].loaded?.then(() => curves(charts));
  }
});

htmx.onLoad(async (root) => {
  for (const [selector, part] of Object.entries(parts)) {
    const elements = [...root.querySelectorAll(selector), ...(root.matches(selector) ? [root] : [])];
    if (elements.length > 0) {
      part.loaded ??= part.files.reduce((before, file) => before.then(() => load(file)), Promise.resolve());
      await part.loaded;
      elements.forEach(part.show);
    }
  }
});
