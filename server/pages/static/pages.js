// A list stays as it is while its reader has chosen some of it, or is in it with the keyboard.
document.addEventListener("htmx:sseBeforeMessage", (event) => {
  const list = event.target.closest("[data-keep-chosen]");
  if (list && (list.querySelector("input:checked") || list.contains(document.activeElement))) {
    event.preventDefault();
  }
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
