// The form of figures: what was refused is told in a list at the top, and each line of it leads to its input.
(() => {
  const problems = document.querySelector("[data-problems]");
  if (!problems) return;

  // Not the browser's own jump: the theme reads the address's part behind "#" as the name of a tab.
  problems.addEventListener("click", (event) => {
    const link = event.target.closest("a");
    const target = link && document.getElementById(link.hash.slice(1));
    if (!target) return;
    event.preventDefault();
    const fold = target.closest("details");
    if (fold) fold.open = true;
    target.focus({ preventScroll: true });
    (target.closest(".ca-figure") || target).scrollIntoView({ block: "center" });
  });

  // The theme hides the page until its script has run.
  window.addEventListener("load", () => problems.focus());
})();
