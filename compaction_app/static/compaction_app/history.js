// The history page's keyboard: j/k messages, n/p boundaries, / find, ? help.
(() => {
  const transcript = document.getElementById("transcript");
  const help = document.getElementById("keys-help");
  const jump = document.getElementById("jump");
  if (!transcript) return;

  const rows = (selector) => Array.from(transcript.querySelectorAll(selector));
  const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  // Where the reader is: the focused row, else the first one whose end is below the window's upper edge.
  const here = () => {
    const focused = document.activeElement && document.activeElement.closest("#transcript > li");
    if (focused) return focused.offsetTop;
    const first = rows(":scope > li").find((row) => row.getBoundingClientRect().bottom > 80);
    return first ? first.offsetTop - 1 : 0;
  };

  const go = (row) => {
    row.focus({ preventScroll: true });
    row.scrollIntoView({ block: "start", behavior: still ? "auto" : "smooth" });
  };

  const move = (selector, step) => {
    const all = rows(selector);
    const at = here();
    const found = step > 0 ? all.find((row) => row.offsetTop > at) : all.reverse().find((row) => row.offsetTop < at);
    if (found) go(found);
    return Boolean(found);
  };

  const turn = (address) => {
    if (address) window.location.assign(address);
  };

  const link = (rel) => {
    const found = document.querySelector(`.ca-pager a[rel="${rel}"]`);
    return found ? found.href : "";
  };

  const keys = {
    j: () => move("[data-message]", 1) || turn(link("next")),
    k: () => move("[data-message]", -1) || turn(link("prev")),
    n: () => move("[data-boundary]", 1) || turn(transcript.dataset.nextBoundary),
    p: () => move("[data-boundary]", -1) || turn(transcript.dataset.previousBoundary),
    "/": () => jump.focus(),
    "?": () => help.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest && event.target.closest("input, textarea, select, [contenteditable], dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  const button = document.getElementById("keys-button");
  if (button) button.addEventListener("click", () => help.showModal());

  // The theme hides the page until its script has run, so the browser could not scroll to the address's message yet.
  window.addEventListener("load", () => {
    const target = window.location.hash && document.getElementById(window.location.hash.slice(1));
    if (target) target.scrollIntoView({ block: "start" });
  });
})();
